"""What the demonstration makes of the audit's answer, and what it hands it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from demo import audit
from demo.history import Outcome, Put


def test_the_audits_answer_becomes_one_line() -> None:
    counts = {"records": 18209, "nodes": 2, "tasks": 5992}
    fine = {"ok": True, "counts": counts, "broken": {}, "rows": []}
    assert audit.read(json.dumps(fine)) == (
        True,
        "audit of the logs: ok, 18,209 records of 2 logs, 5,992 tasks",
    )
    row = {"tube": "frontier", "task": 7, "lsn": 99, "evidence": "why"}
    sound, text = audit.read(
        json.dumps({"ok": False, "counts": counts, "broken": {"two_holders": 3}, "rows": [row]})
    )
    assert not sound
    assert text.startswith("audit of the logs: two_holders 3 in 18,209 records")
    assert text.endswith("tube frontier task 7 LSN 99: why")


def test_only_what_was_answered_is_held_against_the_log(tmp_path: Path) -> None:
    puts = [
        Put(0, "http://a/1", "a", Outcome.OK, 5),
        Put(1, "http://a/2", "a", Outcome.UNKNOWN),
        Put(2, "http://a/3", "a", Outcome.FAILED),
    ]
    audit.write_clients(tmp_path / "told", puts, "frontier")
    rows = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert [(row["tube"], row["task_id"], row["f"], row["outcome"]) for row in rows] == [
        ("frontier", 5, "put", "ok")
    ]


@pytest.mark.parametrize(
    ("lacking", "said"),
    [("numpy", "needs the extra spark: pip install '.[spark]'"), ("pyspark", None)],
)
def test_it_needs_what_the_local_engine_needs(
    monkeypatch: pytest.MonkeyPatch, lacking: str, said: str | None
) -> None:
    monkeypatch.setattr(audit.importlib.util, "find_spec", lambda name: name != lacking or None)
    assert audit.missing() == said


def test_an_audit_that_takes_too_long_is_ended_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As Spark does: a process of its own holds the pipes, so that they end with it alone.
    script = tmp_path / "slow.sh"
    script.write_text("sleep 1000 & wait\n")
    monkeypatch.setattr(audit, "program", lambda: ("sh", str(script)))
    monkeypatch.setattr(audit, "_SECONDS_MAX", 0.5)
    sound, text = asyncio.run(audit.judge([tmp_path], tmp_path / "told"))
    assert (sound, text) == (False, "audit: not done within 0.5 s")
