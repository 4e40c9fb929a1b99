"""The columns of `tandemq_log`: names, types, documentation, and the Arrow schemas made of them.

Nothing here imports Spark, so that decoding can be used and measured without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """One column. `kind` is its Arrow type, `sql` what Spark calls it."""

    name: str
    kind: pa.DataType
    sql: str
    says: str


COLUMNS = (
    Column("term", pa.int64(), "BIGINT", "number of the term the record belongs to"),
    Column("lsn", pa.int64(), "BIGINT", "log sequence number of the record"),
    Column("node", pa.string(), "STRING", "id of the node whose log this is, as a UUID"),
    Column("time", UTC_MICROSECONDS, "TIMESTAMP", "the log's clock when the record was made"),
    Column("tube", pa.string(), "STRING", "tube of the task; NULL where no tube is meant"),
    Column("tube_type", pa.string(), "STRING", "its driver: fifo, utubettl, ..."),
    Column("task_id", pa.int64(), "BIGINT", "task; NULL where no single one is meant"),
    Column("operation", pa.string(), "STRING", "what happened to the task: put, take, ack, ..."),
    Column("kind", pa.string(), "STRING", "the call or event that wrote the record: put_many, ..."),
    Column("state_from", pa.string(), "STRING", "state before, where the record alone tells it"),
    Column("state_to", pa.string(), "STRING", "state after; `-` is done, NULL is unchanged"),
    Column("session", pa.string(), "STRING", "session on whose behalf it happened, as a UUID"),
    Column("attempts", pa.int64(), "BIGINT", "deliveries so far, where the record tells it"),
    Column("ttl", pa.int64(), "BIGINT", "time to live in µs, where it was set"),
    Column("ttr", pa.int64(), "BIGINT", "time to run in µs, where it was set"),
    Column("delay", pa.int64(), "BIGINT", "µs the task stays delayed, where it was delayed"),
    Column("priority", pa.int64(), "BIGINT", "priority of a put as stored; smaller is first"),
    Column("utube", pa.string(), "STRING", "sub-queue of a put"),
    Column("payload", pa.binary(), "BINARY", "payload of a put, MessagePack"),
    Column("term_id", pa.string(), "STRING", "id of the term, 32 hex digits"),
    Column("detail", pa.string(), "STRING", "JSON: a term, a new tube, a damage, a key"),
    Column("segment", pa.string(), "STRING", "file the record stands in"),
    Column("rescue", pa.bool_(), "BOOLEAN", "whether a rewind had cut it off the log"),
    Column("retracted", pa.bool_(), "BOOLEAN", "streams: a record emitted earlier is taken back"),
)
PAYLOAD_JSON = Column(
    "payload_json", pa.string(), "STRING", "payload as JSON, with option payloadJson"
)
BY_NAME = {column.name: column for column in (*COLUMNS, PAYLOAD_JSON)}
ALL = tuple(column.name for column in COLUMNS)
#: Asked for by name, or by an option that makes them worth having: each column costs every row.
ON_REQUEST = ("tube_type", "kind", "term_id", "detail", "segment", "rescue")
DEFAULT = tuple(name for name in ALL if name not in ON_REQUEST)


def check_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each known. Raises `ValueError` naming the unknown one and all known."""
    wanted = tuple(names)
    for name in wanted:
        if name not in BY_NAME:
            raise ValueError(
                f"tandemq_log has no column {name!r}; its columns are {', '.join(BY_NAME)}"
            )
    return wanted


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, BY_NAME[name].kind) for name in names])


def ddl(names: Sequence[str]) -> str:
    """What Spark parses as a schema."""
    return ", ".join(f"{name} {BY_NAME[name].sql}" for name in names)
