"""docs/reliability.md: every failure once, every test it names exists, its counts are right."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
ROW = re.compile(r"^\| (F\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text())


def test_every_failure_has_one_row() -> None:
    assert len(ROWS) >= 96
    assert sorted(int(row[0][1:]) for row in ROWS) == list(range(1, len(ROWS) + 1))


def test_every_test_named_is_there() -> None:
    named = 0
    for ident, _, _, shown in ROWS:
        for path, names in re.findall(r"\]\(\.\./([^)]+)\): ((?:`\w+`(?:, )?)+)", shown):
            source = (ROOT / path).read_text()
            for name in re.findall(r"`(\w+)`", names):
                prefix = "" if "/chaos_" in path else "test_"
                assert re.search(rf"def {prefix}{name}\(", source), f"{ident}: {path} {name}"
                named += 1
    assert named > 96


def test_a_row_without_a_test_says_so() -> None:
    for ident, _, _, shown in ROWS:
        assert "](../tests/" in shown or "not covered" in shown, ident


def test_the_counts_are_those_of_the_rows() -> None:
    none = sum(row[3].startswith("**not covered**") for row in ROWS)
    partly = sum("not covered" in row[3] for row in ROWS) - none
    said = (
        f"{len(ROWS) - none - partly} rows are shown by tests, {partly} in part, {none} not at all."
    )
    assert said in PAGE.read_text()
