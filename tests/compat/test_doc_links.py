"""docs/compatibility.md: every test it names exists, every table row has one or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "compatibility.md"
LINK = re.compile(r"`([\w/]+\.py)::(\w+)`")
TEXT = DOCUMENT.read_text()


def rows(heading: str | None = None) -> list[list[str]]:
    """Cells of all table rows, or of those under one heading; heads and rules left out."""
    text = TEXT
    if heading:
        text = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = []
    for line in text.splitlines():
        if line.startswith("| "):
            found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return [cells for cells in found if cells[-1] != "Tests"]


@pytest.mark.parametrize(("file", "test"), sorted(set(LINK.findall(TEXT))))
def test_linked_test_exists(file: str, test: str) -> None:
    assert re.search(rf"^(async )?def {test}\(", (HERE / file).read_text(), re.MULTILINE)


def test_every_row_has_a_test_or_says_why_not() -> None:
    for cells in rows():
        proof = cells[-1]
        if LINK.search(proof):
            continue
        told = " ".join(cells)
        assert "not here" in told or "(tests of" in told, cells


def test_every_defect_has_its_row_and_its_own_test() -> None:
    table = rows("Defects of the original")
    assert [int(cells[0]) for cells in table] == list(range(1, 43))
    for cells in table:
        for _, test in LINK.findall(cells[-1]):
            assert test.startswith(f"test_defect_{int(cells[0]):02}_")


def test_every_test_file_is_linked() -> None:
    """But for the tests of the documentation itself."""
    linked = {file for file, _ in LINK.findall(TEXT)}
    assert linked == {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
