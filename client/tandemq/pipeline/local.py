"""The jobs in one process, without Spark: the same functions of Arrow tables, called here.

A log is decoded part by part and packed as Spark's tasks pack it; then shares of the tasks, each
whole, are worked on one after the other, so that no more than one share's events lie unpacked.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tandemq.pipeline import lives as lv
from tandemq.pipeline.arrays import TEXT
from tandemq.pipeline.compact_files import advance as advance_archive
from tandemq.pipeline.history_files import HistoryWriter
from tandemq.pipeline.history_files import advance as advance_history
from tandemq.pipeline.notes import gathered
from tandemq.pipeline.packing import (
    NEEDED,
    Surveyed,
    lives_of,
    pack,
    pack_events,
    parts_of,
)
from tandemq.spark.columns import ALL
from tandemq.spark.logs import LogQuery, Part, plan
from tandemq.spark.parts import (
    BATCH_ROWS,
    Folder,
    parquet_file,
    part_name,
    rows_of,
    unarchived,
    write,
)

#: Rows decoded at once, as `tandemq_log` does.
READ_ROWS = 1 << 16
FILE_ROWS = 1 << 17
Bodies = Mapping[int, list[pa.Scalar]]


@dataclass
class LocalSurvey(Surveyed):
    """A log gone through once. packed: Arrow streams of events, by node and bucket."""

    packed: dict[str, dict[int, list[pa.Scalar]]] = field(default_factory=dict)

    def by_task(
        self,
        work: Callable[[lv.Lives], Iterable[pa.RecordBatch]],
        before: Iterable[pa.RecordBatch] = (),
    ) -> Iterator[pa.RecordBatch]:
        """What `work` makes of the lives of tasks, share by share; each task is whole in one.

        Of the log that goes furthest; its packed events are given up on the way. before: rows of
        `tandemq.pipeline.lives.EVENT`, older than the log.
        """
        best = self.furthest
        bodies = {} if best is None or best.node is None else self.packed.pop(best.node, {})
        for batch in pack_events(self.buckets, before):
            store(bodies, batch)
        parts = parts_of(1, self.buckets, 0 if best is None else best.rows)
        for place in range(parts):
            chosen = [bodies.pop(bucket) for bucket in sorted(bodies) if bucket % parts == place]
            part = lives_of(chosen)
            if part is not None:
                yield from work(part)


def store(bodies: dict[int, list[pa.Scalar]], batch: pa.RecordBatch) -> None:
    """Put packed rows to those of their buckets."""
    for bucket, body in zip(batch["bucket"].to_pylist(), batch["body"], strict=True):
        bodies.setdefault(bucket, []).append(body)


@contextmanager
def survey(
    paths: Sequence[str], columns: Sequence[str] = NEEDED, first_lsn: int = 0
) -> Iterator[LocalSurvey]:
    """Look through directories and archives. Raises `StorageError` for what cannot be read."""
    parts = plan([*paths], LogQuery(first_lsn=first_lsn))
    notes: list[bytes] = []
    packed: dict[str, dict[int, list[pa.Scalar]]] = defaultdict(dict)
    for batches in decoded(parts, tuple(columns)):
        for batch in pack(batches, len(parts)):
            node = batch["node"][0].as_py()
            if batch["bucket"].null_count:
                notes += [body.as_py() for body in batch["body"]]
            else:
                store(packed[node], batch)
    yield LocalSurvey(gathered(notes), packed)


def decoded(
    parts: Iterable[Part], columns: tuple[str, ...], operations: frozenset[str] | None = None
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Batches of parts that are packed together: of one log all, of an archive each file.

    operations: None keeps all.
    """
    for (_, file), some in itertools.groupby(
        parts, lambda part: (part.path, part.name if part.archive else None)
    ):
        yield itertools.chain.from_iterable(
            rows_of(part, columns, READ_ROWS, None, operations, file is not None) for part in some
        )


def history(paths: Sequence[str], out: str) -> dict[str, Any]:
    """As `tandemq.pipeline.history.run`; either may go on from the other."""
    number = itertools.count()

    def written(seen: LocalSurvey, writer: HistoryWriter, opened: str | None) -> Any:
        before = () if opened is None else _events(opened)
        for counts in seen.by_task(writer, before):
            yield from counts.to_pylist()

    return advance_history(
        paths,
        out,
        lambda first_lsn: survey(paths, first_lsn=first_lsn),
        written,
        lambda: (next(number), 0),
    )


def _events(folder: str) -> Iterator[pa.RecordBatch]:
    """Events of the tasks that were not over at the end of the last run."""
    texts = [one.name for one in lv.EVENT if one.type == TEXT]
    for file in sorted(Path(folder).glob("[!_.]*.parquet")):
        with parquet_file(file, texts) as parquet:
            yield from parquet.iter_batches(FILE_ROWS, columns=lv.EVENT.names)


def compact(paths: Sequence[str], archive: str, include_open: bool = False) -> dict[str, Any]:
    """As `tandemq.pipeline.compact.run`."""

    def copied(sources: Sequence[str], wanted: LogQuery, into: Path) -> int:
        return sum(
            write(rows_of(part, ALL, BATCH_ROWS), Folder(into), part_name(number))
            for number, part in enumerate(unarchived([*sources], wanted))
        )

    return advance_archive(paths, archive, copied, include_open)
