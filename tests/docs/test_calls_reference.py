"""docs/calls.md is current, names every call there is, and shows the options that are known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tandemq_server.cli import call_reference
from tandemq_server.cli.call_reference import TEXTS, documented, markdown, table, undocumented
from tandemq_server.engine import attempts, listing

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = (ROOT / "docs" / "_site" / "calls.md").read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "calls.md").read_text(encoding="utf-8")
    assert page == markdown(TEMPLATE), "run make docs"


def test_every_call_has_a_line_and_every_line_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert undocumented(table()) == []
    texts = {**TEXTS, "node": {**TEXTS["node"], "box.none": call_reference.Text("", "")}}
    del texts["node"]["queue.state"]
    monkeypatch.setattr(call_reference, "TEXTS", texts)
    assert undocumented(table()) == ["box.none", "queue.state"]
    with pytest.raises(ValueError, match=r"call table differ: box\.none, queue\.state"):
        markdown(TEMPLATE)


def test_rights_and_replicas_are_those_of_the_table() -> None:
    core, rows = table(), {}
    for section in ("tasks", "batches", "tubes", "node"):
        for line in list(call_reference.rows(core, section))[2:]:
            cells = [cell.strip() for cell in line.strip("|").split(" |")]
            rows[cells[0]] = cells[3]
    assert rows["`queue.tube.TUBE:put`"] == "`call`"
    assert rows["`queue.tube.TUBE:peek`"] == "`call`, replica"
    assert rows["`queue.tube.TUBE:truncate`"] == "`truncate`"
    assert rows["`queue.tube.TUBE:redrive`"] == "`manage`"
    assert rows["`queue.tube.TUBE:drop`"] == ""
    assert rows["`queue.create_tube`"] == ""
    assert rows["`box.snapshot`"] == "replica"


def shown(call: str) -> set[str]:
    """The options a line shows, `token` left out, which is no option of the driver's."""
    text = documented()[f"queue.tube.TUBE:{call}"][1]
    assert text is not None
    options = re.findall(r"\{(.*)\}", text.arguments)[0]
    return set(re.findall(r"\w+", options)) - {"token", "T", "true"}


def test_options_shown_are_the_known_ones() -> None:
    tube = table().engine.tubes["TUBE"]
    assert shown("put") == tube.put_options
    assert shown("release") < tube.release_options
    assert shown("bury") == attempts.BURY_OPTIONS
    assert shown("list") == listing.FILTER | {"limit", "after", "info"}
    assert shown("bulk") == listing.FILTER | {"limit", "after", "dry_run", "to"}


def test_the_rim_adds_what_is_said() -> None:
    added = [
        name
        for path in sorted((ROOT / "node").glob("*.py"))
        for name in re.findall(r'core\.handlers\["([^"]+)"\] =', path.read_text(encoding="utf-8"))
    ]
    assert added == list(call_reference.RIM)
