"""docs/migrating.md: its table of contradictions names a test, and a setting, that are there."""

from __future__ import annotations

import re
from pathlib import Path

from tandemq_server.facades.registered import KNOWN

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migrating.md"
CELL = re.compile(r"\[(\w+)\]\((\.\./tests/\w+/\w+\.py)\)")


def rows() -> list[list[str]]:
    part = PAGE.read_text(encoding="utf-8").split("## Where the originals contradict")[1]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_every_row_names_a_test() -> None:
    assert len(rows()) > 10
    for cells in rows():
        assert len(cells) == 6, cells
        found = CELL.fullmatch(cells[5])
        assert found, cells
        source = (PAGE.parent / found[2]).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {found[1]}\(", source, re.MULTILINE), cells


def test_every_setting_is_an_option() -> None:
    options = {name for driver in KNOWN.values() for name in driver.tube_options}
    for cells in rows():
        for name in re.findall(r"`(\w+): \w+`", cells[4]):
            assert name in options | {"compat"}, cells
