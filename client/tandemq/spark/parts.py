"""What a task does with a part of a log: its rows as batches, and batches as a Parquet file.

No Spark here: its tasks do this, and so does the engine of one process.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandemq.model.errors import StorageError
from tandemq.spark.columns import ALL, COLUMNS, arrow_schema
from tandemq.spark.decode import Decoder
from tandemq.spark.disk import ArrowDisk
from tandemq.spark.groups import json_of
from tandemq.spark.logs import LogQuery, Part, plan

#: Larger batches decode and encode faster; no row of them is shipped.
BATCH_ROWS = 1 << 15
GROUP_ROWS = 1 << 17

_TEXTS = [column.name for column in COLUMNS if column.kind == pa.string()]
#: Numbers that mostly grow or stay: differences are small and quicker than a dictionary.
_DELTAS = {
    column.name: "DELTA_BINARY_PACKED"
    for column in COLUMNS
    if pa.types.is_integer(column.kind) or pa.types.is_timestamp(column.kind)
}
#: Columns that queries narrow by. Bounds of the others cost time and help nobody.
_BOUNDED = ["lsn", "time", "tube", "operation", "task_id"]


def rows_of(
    part: Part,
    columns: tuple[str, ...],
    batch_rows: int,
    tubes: frozenset[str] | None = None,
    operations: frozenset[str] | None = None,
    dictionaries: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Batches of a part. Raises `StorageError` where it is damaged.

    tubes / operations: None keeps all. dictionaries: texts of archives stay as they are stored.
    """
    if part.archive:
        yield from archived(part, columns, batch_rows, tubes, operations, dictionaries)
    else:
        yield from Decoder(part, columns, batch_rows, tubes, operations).batches()


def archived(
    part: Part,
    columns: tuple[str, ...],
    batch_rows: int,
    tubes: frozenset[str] | None = None,
    operations: frozenset[str] | None = None,
    dictionaries: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Batches of a Parquet part of an archive; a column it does not have is NULL.

    dictionaries: leave texts encoded, so that each is made once and not for every row.
    """
    schema = arrow_schema(columns)
    texts = [field.name for field in schema if field.type == pa.string()] if dictionaries else []
    bounds = _bounds(part, tubes, operations)
    try:
        with ArrowDisk(part.path).file(part.name) as file:
            parquet = parquet_file(file, texts)
            there = set(parquet.schema_arrow.names)
            read = {name for name in columns if name in there} | {"lsn"}
            if "payload_json" in columns:
                read.add("payload")
            read |= {"tube"} if tubes is not None else set()
            read |= {"operation"} if operations is not None else set()
            for batch in parquet.iter_batches(batch_rows, columns=sorted(read)):
                kept = batch if bounds is None else batch.filter(bounds)
                arrays = [_archived_column(kept, field, field.name in texts) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema.names)
    except (pa.ArrowException, OSError) as error:
        text = str(error).replace("\n", " ")
        raise StorageError(f"{part.path}/{part.name}", 0, f"archive: {text}") from error


def _bounds(
    part: Part, tubes: frozenset[str] | None, operations: frozenset[str] | None
) -> pc.Expression | None:
    """What rows of an archive must be like; None where all are asked for."""
    found = []
    if part.first_lsn > 0 or part.last_lsn < 2**63 - 1:
        found = [pc.field("lsn") >= part.first_lsn, pc.field("lsn") <= part.last_lsn]
    for name, chosen in (("tube", tubes), ("operation", operations)):
        if chosen is not None:
            found.append(pc.field(name).isin(sorted(chosen)))
    return reduce(operator.and_, found) if found else None


def parquet_file(file: Any, encoded: Sequence[str]) -> pq.ParquetFile:
    """A Parquet file, opened; of its columns those of `encoded` come as dictionaries."""
    metadata = pq.read_metadata(file)
    there = [name for name in encoded if name in metadata.schema.names]
    return pq.ParquetFile(file, metadata=metadata, read_dictionary=there)


def _archived_column(batch: pa.RecordBatch, field: pa.Field, as_it_is: bool) -> pa.Array:
    if field.name in batch.schema.names:
        found = batch[field.name]
        return found if as_it_is else found.cast(field.type)
    if field.name == "payload_json":
        return pa.array([json_of(value) for value in batch["payload"].to_pylist()], field.type)
    return pa.nulls(batch.num_rows, field.type)


def unarchived(paths: list[str], wanted: LogQuery) -> list[Part]:
    """What no archive among these paths holds yet; an archive may hold other nodes' records."""
    return [part for part in plan(paths, wanted) if not part.archive]


def term_at(paths: Sequence[str], lsn: int, node: str | None) -> str | None:
    """Id of the term of a node's record; None where none of directories and archives has it."""
    for part in plan([*paths], LogQuery(first_lsn=lsn, last_lsn=lsn)):
        for batch in rows_of(part, ("lsn", "node", "term_id"), BATCH_ROWS):
            for row in batch.to_pylist():
                if (row["lsn"], row["node"]) == (lsn, node):
                    return str(row["term_id"])
    return None


def part_name(number: int) -> str:
    """Of the file of a part; names are in the order of their parts."""
    return f"part-{number:05d}.zstd.parquet"


class Folder:
    """A local folder that gets files; each has its name once it is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def file(self, name: str) -> Iterator[Any]:
        """What to write a file into. It is on the disk when this ends, or not there at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        aside = self.path / f"_{name}.{uuid4().hex}"
        try:
            yield aside
            durable(aside)
            os.replace(aside, self.path / name)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def write(batches: Iterator[pa.RecordBatch], folder: Any, name: str) -> int:
    """Batches of all columns into a Parquet file of a `Folder`, or of what is like one.

    Rows written; no file where there are none.
    """
    first = next(batches, None)
    if first is None:
        return 0
    waiting: list[pa.RecordBatch] = []
    rows = 0
    with folder.file(name) as sink, _writer(sink) as writer:
        for batch in chain([first], batches):
            waiting.append(batch)
            rows += batch.num_rows
            if sum(one.num_rows for one in waiting) >= GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting), GROUP_ROWS * 2)
                waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting), GROUP_ROWS * 2)
    return rows


def put_text(path: Path, text: str) -> None:
    """`put_bytes` of a text."""
    put_bytes(path, text.encode())


def put_bytes(path: Path, data: bytes) -> None:
    """Make this a file's whole content: cut short anywhere, it has that or what it had before."""
    # Readers of folders look at no name that begins like this.
    aside = path.with_name(f".{path.name}.new")
    aside.write_bytes(data)
    durable(aside)
    os.replace(aside, path)
    durable(path.parent)


def durable(path: Path) -> None:
    """A file as it is now, or the names in a folder, are on the disk when this returns."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _writer(sink: Any) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        arrow_schema(ALL),
        compression="zstd",
        use_dictionary=_TEXTS,
        column_encoding=_DELTAS,
        write_statistics=_BOUNDED,
        store_schema=False,
    )
