"""What the outside judge is told of a cut: the lines of `rescue show`, each for what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import chaos_export

SHOWN = [
    {"lsn": 9, "tube": "t", "id": 4, "what": "put again", "payload": [17, "text"]},
    {"lsn": None, "tube": "t", "id": 1, "what": "will run again", "payload": None},
    # Seed 2120757221 of stop_the_master_across_a_promotion: a worker had it in hand at the end.
    {"lsn": None, "tube": "t", "id": 2, "what": "as before the cut: taken in it", "payload": None},
]


def test_each_line_of_a_cut_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"list": [{"name": "one"}], "show": SHOWN}
    monkeypatch.setattr(chaos_export, "operator", lambda *words: told[words[1]])
    rows = list(chaos_export.cut_tasks(Path("data")))
    assert [(row["task"], row.get("payload"), row.get("kinds", [None])[0]) for row in rows] == [
        (4, 17, None),
        (1, None, "take"),
        (2, None, "take"),
    ]
    assert "ack" in rows[1]["kinds"]
    assert "ack" not in rows[2]["kinds"]
