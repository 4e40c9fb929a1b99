"""docs/spark.md names every column, option and check there is."""

from __future__ import annotations

from pathlib import Path

from tandemq.pipeline.audit import CHECKS
from tandemq.pipeline.judge.rules.catalogue import BY_NAME as BY_RULE
from tandemq.spark.columns import BY_NAME
from tandemq.spark.options import LOG_OPTIONS
from tandemq.spark.sink import TUBE_OPTIONS


def test_how_many_rules_each_engine_knows() -> None:
    """Not one that Spark knows and the engine of one machine does not."""
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    assert f"{len(CHECKS)} of the {len(BY_RULE)} rules" in " ".join(text.split())
    assert f"(`by {len(CHECKS)} of {len(BY_RULE)} rules`)" in text
    assert set(CHECKS) < set(BY_RULE)


def test_every_name_is_in_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    names = [option.name for option in LOG_OPTIONS]
    names += [option.name for option in TUBE_OPTIONS if option.name != "path"]
    names += BY_NAME
    assert [name for name in names if f"| `{name}` |" not in text] == []
    # Their meaning is in docs/audit.md, once.
    part = text.split("## What the audit checks")[1].split("\n## ")[0]
    assert [name for name in CHECKS if f"`{name}`" not in part] == []
