"""The report in one process: `tandemq.pipeline.report` without Spark, over the same functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.pipeline import figures as fig
from tandemq.pipeline import local, periods
from tandemq.pipeline.exchange import BUCKETS_MIN, bucket_of, packed, unpacked
from tandemq.pipeline.packing import stretches
from tandemq.pipeline.report_files import FAILING, PUTS, FailingWork, of_file, summed, write
from tandemq.pipeline.spans import TimeSpan
from tandemq.spark.logs import LogQuery, plan

#: Files of a history whose figures are added up before more are read.
FILES_AT_ONCE = 256
#: `known`: there is a payload.
_ORDER = [
    ("failures", "descending"),
    *((name, "ascending") for name in ("tube", "known", "payload")),
]


def figures(files: Sequence[tuple[str, str]], span: TimeSpan) -> pa.Table:
    """Rows of `figures.FIGURE`, of a history's files; counts by bin are quantiles."""
    tables = [fig.FIGURE.empty_table()]
    bins: dict[int, list[pa.Scalar]] = {}
    for at in range(0, len(files), FILES_AT_ONCE):
        some = files[at : at + FILES_AT_ONCE]
        rows = []
        for batch in periods.merged(
            found for table, file in some for found in of_file(table, file, span)
        ):
            if batch.num_rows and batch["what"][0].as_py() == "bins":
                local.store(bins, batch)
            else:
                rows.append(batch)
        tables.append(pa.Table.from_batches(rows, fig.FIGURE).combine_chunks())
    for bucket in sorted(bins):
        met = fig.quantiles([bins.pop(bucket)])
        tables.append(pa.Table.from_batches(met, fig.FIGURE))
    return pa.concat_tables(tables)


def worst(
    paths: Sequence[str], work: FailingWork, first: int, last: int, most: int
) -> list[dict[str, Any]]:
    """What failed most; see `tandemq.pipeline.report_files.Worst`.

    All that failed waits packed, by payload: what is equal meets in one bucket.
    """
    parts = plan([*paths], LogQuery(first_lsn=first, last_lsn=last))
    bodies: dict[int, list[pa.Scalar]] = {}
    for batches in local.decoded(parts, PUTS, frozenset({"put"})):
        for rows in stretches(work(batches, len(parts))):
            sums = [crc32(payload or b"") for payload in rows["payload"].to_pylist()]
            bucket = bucket_of(np.array(sums, np.int64), BUCKETS_MIN)
            for number, body in zip(*packed(rows, bucket, BUCKETS_MIN), strict=True):
                bodies.setdefault(number, []).append(body)
    found = [FAILING.empty_table()]
    for number in sorted(bodies):
        met = pa.concat_tables(unpacked([bodies.pop(number)]))
        found.append(_first(summed(met), most))
    worst_of_all: list[dict[str, Any]] = _first(pa.concat_tables(found), most).to_pylist()
    return worst_of_all


def _first(rows: pa.Table, most: int) -> pa.Table:
    """The first rows in the order in which Spark has them: no payload comes before any."""
    known = rows.append_column("known", pc.is_valid(rows["payload"]))
    return rows.take(pc.sort_indices(known, sort_keys=_ORDER)[:most])


def run(
    paths: Sequence[str], out: str, field: str | None = None, history: str | None = None
) -> dict[str, Any]:
    """As `tandemq.pipeline.report.run`; either may go on from the other's history."""
    return write(
        out,
        history,
        field,
        lambda folder: local.history(paths, folder),
        figures,
        lambda *wanted: worst(paths, *wanted),
    )
