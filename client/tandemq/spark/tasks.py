"""The tasks a tube has now as rows, with what is known of their failures. No Spark here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import asynctnt
import msgpack
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolSchemaError

from tandemq.spark.groups import LAYOUTS, json_of
from tandemq.spark.target import Target

#: Name, Spark's type, what it says.
COLUMNS = (
    ("tube", "STRING", "the tube"),
    ("task_id", "BIGINT", "the task's id in it"),
    ("state", "STRING", "r ready, t taken, ~ delayed, ! buried"),
    ("priority", "BIGINT", "priority, smaller is first"),
    ("ttl", "BIGINT", "time to live in µs"),
    ("ttr", "BIGINT", "time to run in µs"),
    ("utube", "STRING", "sub-queue"),
    ("payload", "BINARY", "payload, MessagePack"),
    ("payload_json", "STRING", "payload as JSON"),
    ("attempts", "BIGINT", "failed attempts that count; NULL: nothing is known of any"),
    ("reason", "STRING", "why the last one failed"),
    ("failed", "TIMESTAMP", "when it did"),
    ("from_tube", "STRING", "a dead letter's tube before"),
    ("from_id", "BIGINT", "its id there"),
    ("from_attempts", "BIGINT", "its attempts there"),
)
#: Rows of one answer.
READ_ROWS = 10_000
#: Places in a row of the tubes' list, and of the notes (engine/notes.py).
TUBE_ID, TUBE_SPACE, TUBE_KIND = 1, 2, 3
NOTES = ("_tandem_notes", "_tandem_notes_local")
ATTEMPTS, REASON, FAILED, FROM = 2, 3, 4, 5

Row = tuple[Any, ...]


def ddl() -> str:
    return ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)


def check_columns(names: Iterable[str]) -> list[str]:
    """The names, each known. Raises `ValueError` naming the unknown one and all known."""
    known, wanted = [name for name, _, _ in COLUMNS], list(names)
    for name in wanted:
        if name not in known:
            raise ValueError(f"a tube has no column {name!r}; its columns are {', '.join(known)}")
    return wanted


async def read(target: Target, names: list[str]) -> Iterator[Row]:
    """A row for each task, in order of ids. Raises `TargetError`, `ValueError` for no such tube."""
    connection = await target.connect()
    try:
        await connection.refetch_schema()
        tubes = await connection.select("_queue", [target.tube])
        if not tubes.body:
            raise ValueError(f"there is no tube {target.tube}")
        tube = tubes.body[0]
        notes = await _notes(connection, tube[TUBE_ID])
        rows = await _all(connection, tube[TUBE_SPACE], [])
    finally:
        await connection.disconnect()
    layout = LAYOUTS.get(tube[TUBE_KIND], {"payload": -1})
    found = (_task(target.tube, row, layout, notes.get(row[0])) for row in rows)
    return (tuple(task[name] for name in names) for task in found)


async def _notes(connection: asynctnt.Connection, tube_id: int) -> dict[Any, Row]:
    """What is known of a tube's tasks beside their rows; nothing for a user who may not see it."""
    found: list[Row] = []
    for space in NOTES:
        try:
            found += await _all(connection, space, [tube_id])
        except (TarantoolDatabaseError, TarantoolSchemaError):
            continue
    return {row[1]: row for row in found}


async def _all(connection: asynctnt.Connection, space: str, prefix: list[Any]) -> list[Row]:
    """All rows whose key begins so, in the order of keys."""
    found: list[Row] = []
    key, size = prefix, len(prefix)
    while True:
        how = "GT" if len(key) > size else "GE" if prefix else "ALL"
        answer = await connection.select(space, key, limit=READ_ROWS, iterator=how)
        rows = [tuple(row) for row in answer.body]
        found += [row for row in rows if list(row[:size]) == prefix]
        if len(rows) < READ_ROWS or list(rows[-1][:size]) != prefix:
            return found
        key = list(rows[-1][: size + 1])


def _task(tube: str, row: Row, layout: dict[str, int], note: Row | None) -> dict[str, Any]:
    payload = msgpack.packb(row[layout["payload"]])
    task = {"tube": tube, "task_id": row[0], "state": row[1], "payload": payload}
    for name in ("priority", "ttl", "ttr"):
        task[name] = min(row[layout[name]], 2**63 - 1) if name in layout else None
    task["utube"] = row[layout["utube"]] if "utube" in layout else None
    task["payload_json"] = json_of(payload)
    known = note is not None and note[FAILED]
    task["attempts"] = note[ATTEMPTS] if note is not None else None
    task["reason"] = note[REASON] if note is not None and known else None
    task["failed"] = datetime.fromtimestamp(note[FAILED] / 1e6, UTC) if note and known else None
    origin = note[FROM : FROM + 3] if note is not None and note[FROM] else (None, None, None)
    task["from_tube"], task["from_id"], task["from_attempts"] = origin
    return task
