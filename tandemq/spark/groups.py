"""Groups of like ops, and the columns made of one group at once.

A group is the puts, the sets or the deletes of one tube, or what is about no task. Which fields a
driver's rows have is known here for the built-in ones; others: id, status, ..., payload.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgpack

from model.record import CREATE, DELETE, INSERT, KIND_NAMES, SET, TERM, TRUNCATE

#: Fields of a driver's rows, by column. Drivers not listed: id, status, ..., payload.
LAYOUTS: dict[str, dict[str, int]] = {
    "fifo": {"payload": 2},
    "fifottl": {"ttl": 3, "ttr": 4, "priority": 5, "payload": 7},
    "limfifottl": {"ttl": 3, "ttr": 4, "priority": 5, "payload": 7},
    "utube": {"utube": 2, "payload": 3},
    "utubettl": {"ttl": 3, "ttr": 4, "priority": 5, "utube": 7, "payload": 8},
}
NEXT_EVENT, TTL, TTR = 2, 3, 4
#: The state a task must have had for such an operation to touch it.
STATE_FROM = {
    "take": "r",
    "ack": "t",
    "release": "t",
    "kick": "!",
    "touch": "t",
    "ttr": "t",
    "delay": "~",
}
LARGEST = 2**63 - 1


#: Kinds under which a task that leaves its tube was given up, not finished.
GIVEN_UP = frozenset({"release", "bury", "ttr"})
SPACE_ID_FIRST = 1024


def operation_name(kind: int, what: int = SET) -> str:
    """What a record of this kind did to a task it inserted, set or deleted (`what`).

    A task that enters a tube was put there, whoever moved it; one that leaves it when it was to
    be given back or set aside is `dead`.
    """
    name = KIND_NAMES.get(kind, f"kind_{kind}")
    if what == INSERT:
        return "put"
    if name in ("session", "term", "startup", "release_all"):
        name = "release"
    name = name.removesuffix("_many")
    if what == DELETE and name in GIVEN_UP:
        return "dead"
    if what == DELETE and name == "other":
        return "move"
    return name


def json_of(payload: bytes | None) -> str | None:
    """A MessagePack payload as JSON; bytes in it as text, None for what is no MessagePack."""
    if payload is None:
        return None
    try:
        value = msgpack.unpackb(payload, strict_map_key=False, unicode_errors="backslashreplace")
        return json.dumps(value, default=plain, ensure_ascii=False)
    except (ValueError, TypeError, msgpack.UnpackException):
        return None


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return repr(value)


def about_no_task(ops: Sequence[Any]) -> tuple[int, str | None]:
    """(space id or 0, detail as JSON) of a record about no single task: a term, a tube, ..."""
    space, detail = 0, None
    for op in ops:
        if op[0] == TERM:
            number, term_id, parent, start_lsn, node, solo = op[1:7]
            detail = {
                "number": number,
                "id": term_id.hex(),
                "parent": parent.hex() if parent else None,
                "start_lsn": start_lsn,
                "node": node,
                "solo": solo,
            }
        elif op[0] == CREATE:
            space, detail = op[1], {"name": op[2], "type": op[3], "opts": op[4]}
        elif op[1] >= SPACE_ID_FIRST:
            space = op[1]
    return space, None if detail is None else json.dumps(detail, default=plain)


class Group:
    """Rows that become columns together: puts, sets or deletes of one tube, or the rest."""

    __slots__ = ("rows", "space", "what")

    def __init__(self, what: int, space: int) -> None:
        self.what = what
        self.space = space
        self.rows: list[tuple[Any, ...]] = []


class Columns:
    """One group's values by column, made when asked for."""

    def __init__(
        self,
        group: Group,
        tube: str | None,
        driver: str,
        sessions: dict[bytes | None, str | None],
    ) -> None:
        self.what = group.what
        self.lsn, self.times, self.kinds, self.owners, self.values = zip(*group.rows, strict=True)
        self.tube = tube
        self.driver = driver or None
        self.layout = LAYOUTS.get(driver, {"payload": -1})
        self.sessions = sessions

    def values_of(self, name: str) -> Sequence[Any] | str | None:
        """One value for each row; a text that holds for all; None where all are NULL."""
        if name == "tube":
            return self.tube
        if name == "tube_type":
            return self.driver
        if name in ("kind", "operation", "state_from") and len(set(self.kinds)) == 1:
            found = self._values(name)
            return None if found is None else found[0]
        return self._values(name)

    def operations(self) -> Sequence[str | None]:
        """What each row says happened, as in the column `operation`."""
        found = self._values("operation")
        assert found is not None
        return found

    def _values(self, name: str) -> Sequence[Any] | None:
        if name == "lsn":
            return self.lsn
        if name == "time":
            return self.times
        if name == "kind":
            return self._named(lambda kind: KIND_NAMES.get(kind, f"kind_{kind}"))
        if name == "operation":
            if self.what == TRUNCATE:
                return self._named(lambda kind: KIND_NAMES.get(kind, f"kind_{kind}"))
            return self._named(lambda kind: operation_name(kind, self.what))
        if name == "session":
            return self._session_names()
        if name == "state_from" and self.what != TRUNCATE:
            what = self.what
            return self._named(lambda kind: STATE_FROM.get(operation_name(kind, what)))
        if self.what == INSERT:
            return self._of_insert(name)
        if self.what == SET:
            return self._of_set(name)
        if self.what == DELETE:
            if name == "task_id":
                return self.values
            return ["-"] * len(self.lsn) if name == "state_to" else None
        return self.values if name == "detail" else None

    def _named(self, name_of: Callable[[int], str | None]) -> Sequence[str | None]:
        names = {kind: name_of(kind) for kind in set(self.kinds)}
        return [names[kind] for kind in self.kinds]

    def _session_names(self) -> Sequence[str | None]:
        names = self.sessions
        for session in set(self.owners):
            if session not in names:
                names[session] = (
                    str(UUID(bytes_le=session)) if len(session) == 16 else session.hex()
                )
        return [names[session] for session in self.owners]

    def _of_insert(self, name: str) -> Sequence[Any] | None:
        rows = self.values
        if name == "task_id":
            return [row[0] for row in rows]
        if name == "state_to":
            return [row[1] for row in rows]
        if name == "payload":
            at = self.layout["payload"]
            return [_bytes(row[at]) for row in rows]
        if name == "payload_json":
            at = self.layout["payload"]
            return [json_of(_bytes(row[at])) for row in rows]
        if name == "delay" and "ttl" in self.layout:
            return [
                row[NEXT_EVENT] - now if row[1] == "~" else None
                for row, now in zip(rows, self.times, strict=True)
            ]
        place = self.layout.get(name)
        if place is None:
            return None
        if name == "utube":
            return [_text(row[place]) for row in rows]
        return [min(row[place], LARGEST) for row in rows]

    def _of_set(self, name: str) -> Sequence[Any] | None:
        ops = self.values
        if name == "task_id":
            return [op[2] for op in ops]
        if name == "state_to":
            return [op[4] if op[3] == 1 else _field(op, 1) for op in ops]
        if "ttl" not in self.layout:
            return None
        if name == "ttl":
            return [_field(op, TTL) if len(op) > 7 else None for op in ops]
        if name == "ttr":
            return [_field(op, TTR) if len(op) > 7 else None for op in ops]
        if name == "delay":
            return [
                (_field(op, NEXT_EVENT) or now) - now if op[4] == "~" else None
                for op, now in zip(ops, self.times, strict=True)
            ]
        return None


def _field(op: Sequence[Any], number: int) -> Any:
    """The value a set op gives to a field; None when it leaves it alone."""
    for at in range(3, len(op) - 1, 2):
        if op[at] == number:
            return op[at + 1]
    return None


def _text(value: str | None) -> str | None:
    """As it is, but bytes that are no UTF-8 as \\x.. : Arrow and Spark take no others."""
    if value is None or value.isascii():
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _bytes(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) else None
