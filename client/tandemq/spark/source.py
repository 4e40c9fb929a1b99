"""`format("tandemq_log")`: the batch reader, and the door to the stream reader.

Planning runs on the driver and hands every task one part of a segment. What narrows a read comes
as options, and with `pushdown` from a query's own filters, all of which Spark checks once more.
"""

from __future__ import annotations

import datetime
import gc
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from tandemq.model.errors import StorageError
from tandemq.spark import options as opt
from tandemq.spark import tables
from tandemq.spark.columns import ALL, DEFAULT, check_columns, ddl
from tandemq.spark.decode import damaged
from tandemq.spark.logs import LogQuery, Part, plan
from tandemq.spark.parts import rows_of

MODES = ("FAILFAST", "PERMISSIVE")
#: What a Python worker was forked from.
DAEMONS = ("pyspark.daemon", "tandemq.spark.daemon")

_settled: set[bool] = set()


def settle() -> None:
    """Hide what a Python worker has loaded from the garbage collector, once with the compiled code.

    PySpark collects after everything it has a worker do, which takes longer than a small part's
    rows. Only in such a worker: modules live as long as it does.
    """
    compiled = "tandemq.spark.compiled" in sys.modules
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if compiled not in _settled and getattr(spec, "name", "") in DAEMONS:
        _settled.add(compiled)
        gc.freeze()


@dataclass
class LogPartition(InputPartition):
    """What one Spark task reads."""

    part: Part


class TandemLog(DataSource):
    """The log of one or several nodes as rows. Columns and options: docs/spark.md."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self.values = opt.parse("tandemq_log", opt.LOG_OPTIONS, tables.asked(options))
        settle()

    @classmethod
    def name(cls) -> str:
        return "tandemq_log"

    def schema(self) -> str | StructType:
        if not tables.is_made(self.options):
            return self._ddl()
        opt.paths(self.values)
        return tables.keeping(self._ddl(), self.options)

    def _ddl(self) -> str:
        named = self.values["columns"]
        if named == "*":
            names = list(ALL)
        elif named:
            names = [name.strip() for name in named.split(",")]
        else:
            names = list(DEFAULT)
            if opt.choice(self.values, "mode", MODES) == "PERMISSIVE":
                names += ["detail", "segment"]
            if opt.flag(self.values, "rescue"):
                names.append("rescue")
        if opt.flag(self.values, "payloadJson") and "payload_json" not in names:
            names.append("payload_json")
        return ddl(check_columns(names))

    def reader(self, schema: StructType) -> DataSourceReader:
        values = self._values(schema)
        kind = PushingLogReader if opt.flag(values, "pushdown") else LogReader
        return kind(values, check_columns(schema.names))

    def streamReader(self, schema: StructType) -> Any:
        from tandemq.spark.stream import LogStreamReader

        return LogStreamReader(self._values(schema), check_columns(schema.names))

    def _values(self, schema: StructType) -> dict[str, Any]:
        """With what a table of a catalog was made with."""
        places = ("path", "paths")
        return tables.values_of("tandemq_log", opt.LOG_OPTIONS, self.options, schema, places)


class LogReading:
    """What batch and stream readers share: options, and turning a part into batches."""

    #: Texts of archives may come as dictionaries, as they are stored.
    dictionaries = False

    def __init__(self, values: Mapping[str, Any], columns: tuple[str, ...]) -> None:
        self.values = values
        self.paths = opt.paths(values)
        self.columns = columns
        self.batch_rows = opt.number(values, "batchRows")
        self.permissive = opt.choice(values, "mode", MODES) == "PERMISSIVE"
        self.bad_records = values["badRecordsPath"]
        self.wanted = LogQuery(
            rescue=opt.flag(values, "rescue"),
            until_commit=opt.choice(values, "until", ("end", "commit")) == "commit",
            permissive=self.permissive,
            split_bytes=opt.number(values, "splitBytes", 1024),
        )
        self.tubes = opt.names(values, "tubes")
        self.operations = opt.names(values, "operations")

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """What a task yields. Spark turns an empty list of partitions into one that is None."""
        if partition is not None and hasattr(partition, "part"):
            yield from self.rows(partition.part)
        settle()

    def rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Batches of a part; in mode PERMISSIVE damage becomes a row and, if asked, a file."""
        if part.damage is None:
            try:
                keep = (self.tubes, self.operations)
                how = (self.batch_rows, *keep, self.dictionaries)
                yield from rows_of(part, self.columns, *how)
                return
            except StorageError as error:
                if not self.permissive:
                    raise
                part.damage = (error.position, error.reason)
        self._keep_bad(part)
        yield damaged(part, self.columns)

    def _keep_bad(self, part: Part) -> None:
        if self.bad_records is None or part.damage is None:
            return
        folder = Path(self.bad_records)
        folder.mkdir(parents=True, exist_ok=True)
        position, reason = part.damage
        value = {"path": part.path, "file": part.name, "position": position, "reason": reason}
        (folder / f"bad-{uuid4().hex}.json").write_text(json.dumps(value) + "\n")


class LogReader(LogReading, DataSourceReader):
    """Batch reader: parts planned on the driver, decoded in the tasks."""

    def __init__(self, values: Mapping[str, Any], columns: tuple[str, ...]) -> None:
        super().__init__(values, columns)
        wanted = self.wanted
        wanted.first_lsn, wanted.last_lsn = opt.bounds(values, "fromLsn", "toLsn", opt.lsn)
        wanted.first_us, wanted.last_us = opt.bounds(values, "fromTime", "toTime", opt.time_us)

    def partitions(self) -> list[LogPartition]:
        parts = plan(self.paths, self.wanted)
        settle()
        return [LogPartition(part) for part in parts]


class PushingLogReader(LogReader):
    """Takes note of a query's filters on lsn, time, tube and operation.

    Only on request: PySpark 4.3 keeps one reader for a DataFrame, and an unfiltered (or another)
    use of the same DataFrame would get the rows of the filtered one.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of what narrows the read; every filter goes back for Spark to check."""
        for one in filters:
            if len(getattr(one, "attribute", ())) == 1:
                self._note(one, one.attribute[0])  # type: ignore[attr-defined]
        return filters

    def _note(self, one: Filter, name: str) -> None:
        if name in ("tube", "operation") and isinstance(one, EqualTo | In):
            values = one.value if isinstance(one, In) else (one.value,)
            chosen = frozenset(values)
            if name == "tube":
                self.tubes = chosen if self.tubes is None else self.tubes & chosen
            else:
                if "damaged" in chosen:
                    return
                before = self.operations
                self.operations = chosen if before is None else before & chosen
        elif name in ("lsn", "time"):
            self._bound(one, name)

    def _bound(self, one: Filter, name: str) -> None:
        value = getattr(one, "value", None)
        if isinstance(value, datetime.datetime):
            if value.tzinfo is None:
                return
            epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
            value = (value - epoch) // datetime.timedelta(microseconds=1)
        if not isinstance(value, int):
            return
        low, high = ("first_lsn", "last_lsn") if name == "lsn" else ("first_us", "last_us")
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            setattr(self.wanted, low, max(getattr(self.wanted, low), value))
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            setattr(self.wanted, high, min(getattr(self.wanted, high), value))
