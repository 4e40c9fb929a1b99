"""docs/benchmarks.md keeps one table a section: a run replaces its own and no other."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import benchmarks
from benchmarks.table import LAST_MARK, Row, at_least, markdown, update_docs

ABOUT: dict[str, object] = {
    "commit": "c0ffee",
    "time": "2026-01-01 00:00:00",
    "python": "3.11",
    "cores": 2,
    "cpu": "a cpu",
    "kernel": "6",
    "others": 0.5,
}


def table(figure: str) -> str:
    return markdown([Row("part", "name", figure, goals=[at_least(0.5, 1.0)])], ABOUT)


def test_a_run_replaces_its_own_table_and_no_other(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"text before\n\n{LAST_MARK}\ntext behind\n", encoding="utf-8")
    for section, figure in (("wire", "first"), ("memory", "17 MB"), ("wire", "second")):
        update_docs(page, section, table(figure))
    text = page.read_text(encoding="utf-8")
    assert "first" not in text
    parts = ["text before", "### wire", "second", "### memory", "17 MB", "text behind"]
    assert sorted(parts, key=text.index) == parts
    assert text.count("Commit c0ffee, 2026-01-01 00:00:00 UTC") == 2
    assert text.count("0.50x >= 1.00x MISS") == 2


def test_a_page_without_a_place_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no line <!-- tables end -->"):
        update_docs(page, "wire", table("any"))
    assert page.read_text(encoding="utf-8") == "text\n"


def test_every_measurement_can_be_started() -> None:
    """Nothing else in the tests imports most of them, and what they measure moves."""
    for file in sorted(Path(benchmarks.__file__).parent.glob("*.py")):
        importlib.import_module(f"benchmarks.{file.stem}")
