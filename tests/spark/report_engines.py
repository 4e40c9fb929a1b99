"""A report by both engines: every table and the page of one process are those of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tandemq.pipeline import report, report_local


def report_by_both(
    spark: Any,
    paths: Sequence[str],
    out: str,
    field: str | None = None,
    history: str | None = None,
) -> dict[str, Any]:
    """`report.run`, and beside its folders (`-local`) what `report_local.run` makes of the same."""
    counts = report.run(spark, paths, out, field, history)
    kept = None if history is None else f"{history}-local"
    assert report_local.run(paths, f"{out}-local", field, kept) == counts | {
        "page": str(Path(f"{out}-local") / "report.html")
    }
    for name in counts.keys() - {"page"}:
        one, other = (
            pq.read_table(Path(home) / f"{name}.parquet") for home in (out, f"{out}-local")
        )
        assert one.schema.equals(other.schema), name
        assert one.to_pylist() == other.to_pylist(), name
    pages = [(Path(home) / "report.html").read_text() for home in (out, f"{out}-local")]
    assert pages[0] == pages[1]
    return counts
