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

from tandemq.model.record import CREATE, DELETE, INSERT, KIND_NAMES, SET, TERM, TRUNCATE

#: Where a payload is: the last field, or all fields from the sixth on as one array.
LAST, REST, REST_FROM = -2, -3, 5
_TTL = {"event": 2, "ttl": 3, "ttr": 4, "priority": 5}
#: Fields of a driver's rows, by column; `event`: when the task is looked at again, `attempts`: the
#: row's own counter. Drivers not listed: id, status, ..., payload.
LAYOUTS: dict[str, dict[str, int]] = {
    "fifo": {"payload": 2},
    "fifottl": {**_TTL, "payload": 7},
    "limfifottl": {**_TTL, "payload": 7},
    "utube": {"utube": 2, "payload": 3},
    "utubettl": {**_TTL, "utube": 7, "payload": 8},
    "queue15": {
        "utube": 2, "event": 4, "priority": 6, "ttl": 9, "ttr": 10, "attempts": 12, "payload": 13,
    },
    "xqueue": {"event": 2, "payload": REST},
}  # fmt: skip
OTHER_LAYOUT = {"payload": LAST}
#: Drivers whose tasks' keys are integers below 2**63, and no others.
NUMBERED = frozenset(LAYOUTS) - {"xqueue"}
#: The space of notes on tasks (engine/notes.py): its rows begin with tube, task and attempts.
NOTES_ID, NOTE_ATTEMPTS = 521, 2
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
    be given back or set aside is `dead`. With TRUNCATE: a record about no task.
    """
    name = KIND_NAMES.get(kind, f"kind_{kind}")
    if what == TRUNCATE:
        return name
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
    """(space id or 0, detail as JSON) of what is about no single task: a term, a tube, ..."""
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
            return 0, json.dumps(detail, default=plain)
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
        notes: dict[tuple[int, int, Any], int],
    ) -> None:
        """notes: attempts that records name, by LSN, space and task."""
        self.what = group.what
        self.space = group.space
        self.notes = notes
        self.lsn, self.times, self.kinds, self.owners, self.values = zip(*group.rows, strict=True)
        self.tube = tube
        self.driver = driver or None
        self.layout = LAYOUTS.get(driver, OTHER_LAYOUT)
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
            return self._named(lambda kind: operation_name(kind, self.what))
        if name == "session":
            return self._session_names()
        if name == "state_from" and self.what != TRUNCATE:
            what = self.what
            return self._named(lambda kind: STATE_FROM.get(operation_name(kind, what)))
        if self.what == TRUNCATE:
            return self.values if name == "detail" else None
        if name in ("task_id", "detail"):
            return self._keys(name)
        if self.what == INSERT:
            return self._of_insert(name)
        if self.what == SET:
            return self._of_set(name)
        if name == "attempts":
            return self._noted()
        return ["-"] * len(self.lsn) if name == "state_to" else None

    def _keys(self, name: str) -> Sequence[Any] | None:
        """Tasks by number; a key that is none is NULL there and stands in the detail."""
        at = {INSERT: 0, SET: 2}.get(self.what)
        keys = self.values if at is None else [value[at] for value in self.values]
        if self.driver in NUMBERED:
            return keys if name == "task_id" else None
        fits = [type(key) is int and -LARGEST <= key <= LARGEST for key in keys]
        if name == "task_id":
            return [key if fit else None for key, fit in zip(keys, fits, strict=True)]
        if all(fits):
            return None
        return [
            None if fit else json.dumps({"key": key}, default=plain)
            for key, fit in zip(keys, fits, strict=True)
        ]

    def _noted(self) -> Sequence[int | None] | None:
        """Attempts by the notes their records wrote."""
        keys = self._keys("task_id")
        if not self.notes or keys is None:
            return None
        of, space = self.notes.get, self.space
        return [of((lsn, space, key)) for lsn, key in zip(self.lsn, keys, strict=True)]

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
        if name == "state_to":
            return [row[1] for row in rows]
        if name == "attempts":
            return [0] * len(rows)
        if name == "payload":
            return self._payloads()
        if name == "payload_json":
            return [json_of(payload) for payload in self._payloads()]
        if name == "delay" and "event" in self.layout:
            event = self.layout["event"]
            return [
                row[event] - now if row[1] == "~" else None
                for row, now in zip(rows, self.times, strict=True)
            ]
        place = self.layout.get(name)
        if place is None:
            return None
        if name == "utube":
            return [_text(row[place]) for row in rows]
        return [min(row[place], LARGEST) for row in rows]

    def _payloads(self) -> list[bytes | None]:
        at = self.layout["payload"]
        if at == REST:
            return [
                msgpack.packb(row[REST_FROM:], unicode_errors="surrogateescape")
                for row in self.values
            ]
        at = -1 if at == LAST else at
        return [_bytes(row[at]) for row in self.values]

    def _of_set(self, name: str) -> Sequence[Any] | None:
        ops, place = self.values, self.layout.get("event" if name == "delay" else name)
        if name == "state_to":
            return [op[4] if op[3] == 1 else _field(op, 1) for op in ops]
        if name == "attempts" and place is None:
            return self._noted()
        if place is None:
            return None
        if name in ("ttl", "ttr", "attempts"):
            return [_field(op, place) if len(op) > 7 else None for op in ops]
        if name == "delay":
            return [
                (_field(op, place) or now) - now if op[4] == "~" else None
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
