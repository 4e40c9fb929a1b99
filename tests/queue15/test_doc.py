"""docs/compatibility-queue15.md: every test it names exists, every table row names one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TEXT = (HERE.parents[1] / "docs" / "compatibility-queue15.md").read_text(encoding="utf-8")
LINK = re.compile(r"`(\w+\.py)::(\w+)`")


@pytest.mark.parametrize(("file", "test"), sorted(set(LINK.findall(TEXT))))
def test_linked_test_exists(file: str, test: str) -> None:
    assert re.search(rf"^ *def {test}\(", (HERE / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_row_names_a_test() -> None:
    rows = [line for line in TEXT.split("\n") if line.startswith("| ") and "| Tests |" not in line]
    priorities = TEXT.split("### Priorities")[1].split("Test:")[0]
    assert len(rows) > 60
    assert all(LINK.search(row) for row in rows if row not in priorities)


def test_every_defect_has_its_row_and_every_test_of_one_is_named() -> None:
    table = TEXT.split("## Defects of the original")[1]
    numbers = [int(found) for found in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert numbers == list(range(1, 20))
    source = (HERE / "test_defects.py").read_text(encoding="utf-8")
    tests = set(re.findall(r"^def (test_defect_\w+)\(", source, re.MULTILINE))
    assert tests == {test for _, test in LINK.findall(table)}
