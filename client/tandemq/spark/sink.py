"""`format("tandemq")`: rows become tasks, in batches and streams; and a tube's tasks as rows.

Every row gets a key, its own or one made of job, partition and place, so that a task tried again,
a job restarted and a node lost in mid-write store nothing twice (option `key` of put).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgpack
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tandemq.client.tls import Tls
from tandemq.spark import options as opt
from tandemq.spark import tables, tasks
from tandemq.spark.target import Frame, Target, addresses

TUBE_OPTIONS = (
    opt.Option("servers", None, "host:port of the nodes, with commas between"),
    opt.Option("tube", None, "the tube; it must be there"),
    opt.Option("user", None, "user name; default guest"),
    opt.Option("passwordEnv", "TANDEMQ_PASSWORD", "variable that holds the password"),
    opt.Option("tlsCa", None, "speak TLS; authority of the nodes' certificates, or `system`"),
    opt.Option("tlsCert", None, "certificate to show to nodes that want one"),
    opt.Option("tlsKey", None, "its key; unless given, in the same file"),
    opt.Option("tlsServerName", None, "name in the certificate, where that is not the address"),
    opt.Option("jobId", None, "name of the job: with the same one a restart puts nothing twice"),
    opt.Option("keyWindow", "86400", "seconds the server knows a key"),
    opt.Option("frameRows", "1000", "rows of one put_many"),
    opt.Option("window", "8", "put_many in flight"),
    opt.Option("timeout", "60", "seconds without a writable node after which the task fails"),
    opt.Option("rejects", None, "folder for rows the server refuses; without it they fail the job"),
    opt.Option("summary", None, "file that gets the job's counts as JSON"),
    opt.Option("columns", None, "CREATE TABLE: columns of puts, as `name TYPE`; else those below"),
    opt.Option("path", None, "not used"),
)
#: Columns that are options of the put; all others make up the payload.
PUT_COLUMNS = ("key", "utube", "pri", "ttl", "ttr", "delay")


@dataclass
class Message(WriterCommitMessage):
    """What one Spark task put."""

    stored: int = 0
    refused: int = 0
    resent: int = 0


class TandemTube(DataSource):
    """A tube as sink and source."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        # What is missing may be kept by a table of a catalog.
        opt.parse("tandemq", TUBE_OPTIONS, tables.asked(options))

    @classmethod
    def name(cls) -> str:
        return "tandemq"

    def schema(self) -> str | StructType:
        values = self._values()
        if not tables.is_made(self.options):
            return tasks.ddl()
        return tables.keeping(values["columns"] or tasks.ddl(), self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        values = self._values(schema)
        if values["columns"]:
            raise ValueError("a table with the option columns is written to, never read")
        return TubeReader(values, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise ValueError("tandemq only appends: use mode('append')")
        values = self._values(schema)
        if not values["columns"] and "servers" not in self.options:
            raise ValueError("a table without the option columns is read, never written to")
        return TubeWriter(values, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return TubeStreamWriter(self._values(), schema)

    def _values(self, schema: StructType | None = None) -> dict[str, Any]:
        """With what a table of a catalog was made with, if `schema` is one's."""
        asked = tables.asked(self.options)
        columns = schema or StructType()
        values = tables.values_of("tandemq", TUBE_OPTIONS, asked, columns, ("servers",))
        for name in ("servers", "tube"):
            if not values[name]:
                raise ValueError(f"tandemq needs the option {name} ({opt.LOST})")
        addresses(values["servers"])
        tls_of(values)
        return values


def tls_of(values: Mapping[str, Any]) -> Tls | None:
    """Files are read where the writers run. Raises ValueError."""
    return Tls.of(*(values[name] for name in ("tlsCa", "tlsCert", "tlsKey", "tlsServerName")))


def target_of(values: Mapping[str, Any]) -> Target:
    """Variables are read where the writers run. Raises ValueError."""
    password = os.environ.get(values["passwordEnv"]) if values["user"] else None
    if values["user"] and password is None:
        raise ValueError(
            f"user {values['user']} has no password: the variable {values['passwordEnv']} "
            "(option passwordEnv) is not set where the job's Python workers run"
        )
    return Target(
        addresses(values["servers"]),
        values["tube"],
        values["user"],
        password,
        opt.number(values, "timeout"),
        opt.number(values, "window"),
        tls_of(values),
    )


class SinkWriting:
    """What both writers share: rows to frames, keys, rejects, counts."""

    def __init__(self, values: Mapping[str, Any], schema: StructType) -> None:
        self.values = dict(values)
        self.names = list(schema.names)
        self.job = values["jobId"] or uuid4().hex
        if "payload" in self.names:
            others = [one for one in self.names if one not in (*PUT_COLUMNS, "payload", "tube")]
            if others:
                raise ValueError(
                    f"beside payload only {', '.join(PUT_COLUMNS)} are known, not {others[0]!r}"
                )

    def put(self, batches: Iterator[pa.RecordBatch], prefix: str) -> Message:
        target = target_of(self.values)
        frames = self.frames(batches, prefix)
        done = asyncio.run(target.put_all(frames, lambda _: None))
        if done.refused:
            self._reject(done.refused)
        return Message(done.stored, len(done.refused), done.resent)

    def frames(self, batches: Iterator[pa.RecordBatch], prefix: str) -> Iterator[Frame]:
        """put_many calls in the order of the rows."""
        size = opt.number(self.values, "frameRows")
        window = opt.number(self.values, "keyWindow")
        count = 0
        for batch in batches:
            for start in range(0, batch.num_rows, size):
                part = batch.slice(start, size)
                payloads = self._payloads(part)
                options = self._options(part, prefix, count, window)
                count += part.num_rows
                yield [list(pair) for pair in zip(payloads, options, strict=True)]

    def _payloads(self, part: pa.RecordBatch) -> list[Any]:
        if "payload" not in self.names:
            names = [name for name in self.names if name not in (*PUT_COLUMNS, "tube")]
            columns = [_plain_values(part[name]) for name in names]
            return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        values = part["payload"].to_pylist()
        if pa.types.is_binary(part["payload"].type):
            return [msgpack.unpackb(value, strict_map_key=False) for value in values]
        return [_plain(value) for value in values]

    def _options(
        self, part: pa.RecordBatch, prefix: str, count: int, window: int
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [
            {"key": f"{prefix}-{number}", "window": window}
            for number in range(count, count + part.num_rows)
        ]
        for name in PUT_COLUMNS:
            if name in self.names:
                for row, value in zip(rows, part[name].to_pylist(), strict=True):
                    if value is not None:
                        row[name] = value
        return rows

    def _reject(self, refused: list[tuple[list[Any], str]]) -> None:
        if not self.values["rejects"]:
            row, reason = refused[0]
            raise ValueError(f"{len(refused)} rows were refused, the first: {reason}: {row[0]!r}")
        folder = Path(self.values["rejects"])
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"reason": reason, "payload": row[0], "options": row[1]}, default=str)
            for row, reason in refused
        ]
        (folder / f"rejects-{uuid4().hex}.jsonl").write_text("\n".join(lines) + "\n")

    def _sum_up(
        self, messages: list[WriterCommitMessage | None], batch: int | None, outcome: str = "done"
    ) -> None:
        """Write the counts down. outcome `aborted`: of the partitions that came to their end;
        of one that failed, Spark's error says how many rows it had stored."""
        if not self.values["summary"]:
            return
        there = [one for one in messages if isinstance(one, Message)]
        counts = {
            "job": self.job,
            "batch": batch,
            "outcome": outcome,
            "stored": sum(one.stored for one in there),
            "refused": sum(one.refused for one in there),
            "resent": sum(one.resent for one in there),
        }
        Path(self.values["summary"]).write_text(json.dumps(counts) + "\n")


def _plain_values(column: pa.Array) -> list[Any]:
    """A column's values as MessagePack has them."""
    kind = column.type
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not column.null_count:
        found: list[Any] = column.to_numpy().tolist()
        return found
    values: list[Any] = column.to_pylist()
    if pa.types.is_string(kind) or (pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)):
        return values
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    """What MessagePack has a type for; the rest as text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    return str(value)


class TubeWriter(SinkWriting, DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        context = TaskContext.get()
        assert context is not None
        return self.put(iterator, f"{self.job}/{context.partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sum_up(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sum_up(messages, None, "aborted")


class TubeStreamWriter(SinkWriting, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        context = TaskContext.get()
        assert context is not None
        # Both survive a restart from the checkpoint, which repeats the batch.
        query = self.values["jobId"] or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return self.put(iterator, f"{query}/{batch}/{context.partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sum_up(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sum_up(messages, batchId, "aborted")


class TubeReader(DataSourceReader):
    """The tasks a tube has now, in order of their ids; one partition."""

    def __init__(self, values: Mapping[str, Any], schema: StructType) -> None:
        self.values = dict(values)
        self.names = tasks.check_columns(schema.names)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return asyncio.run(tasks.read(target_of(self.values), self.names))
