"""docs/compatibility-xqueue.md: every test it names exists, every table row names one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TEXT = (HERE.parents[1] / "docs" / "compatibility-xqueue.md").read_text(encoding="utf-8")
LINK = re.compile(r"`(\w+\.py)::(\w+)`")


@pytest.mark.parametrize(("file", "test"), sorted(set(LINK.findall(TEXT))))
def test_linked_test_exists(file: str, test: str) -> None:
    assert re.search(rf"^ *def {test}\(", (HERE / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_row_names_a_test() -> None:
    rows = [line for line in TEXT.split("\n") if line.startswith("| ") and "| Tests |" not in line]
    assert len(rows) > 65
    assert [row for row in rows if not LINK.search(row)] == []


def test_every_defect_has_its_row_and_its_test_is_named_after_it() -> None:
    table = TEXT.split("## Defects of the original")[1].split("## Errors")[0]
    rows = re.findall(r"^\| (\d+) \|(.*)", table, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 19))
    for number, row in rows:
        assert all(re.match(rf"test_{number}[a-z]?_", test) for _, test in LINK.findall(row)), row
