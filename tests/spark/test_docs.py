"""docs/spark.md names every column, option and check there is."""

from __future__ import annotations

from pathlib import Path

from tandemq.pipeline.audit import CHECKS
from tandemq.spark.columns import BY_NAME
from tandemq.spark.options import LOG_OPTIONS
from tandemq.spark.sink import TUBE_OPTIONS


def test_every_name_is_in_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    names = [option.name for option in LOG_OPTIONS]
    names += [option.name for option in TUBE_OPTIONS if option.name != "path"]
    names += [*BY_NAME, *CHECKS]
    assert [name for name in names if f"| `{name}` |" not in text] == []
