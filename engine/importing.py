"""Tasks from another server, in the layout of its spaces: ids, states and deadlines are kept.

Rows and how far the import is are one record: what was taken in once never comes again, even when
it has been executed meanwhile. The mark is a row of `_tandem_config`, named `import:TUBE`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drivers import BUILT_IN
from drivers import queue15 as q
from drivers.deadlines import CREATED, NEXT_EVENT, TTL
from drivers.queue15 import Queue15
from model.errors import failure
from model.record import KIND_OTHER
from model.task import NEVER_US
from spaces.lane_index import MIDDLE
from spaces.space import Row

if TYPE_CHECKING:
    from engine.queue import Engine
    from engine.tube import Tube

BATCH_MAX = 10_000
#: Fields of a 1.5 row before its data: id, tube, status, event, ipri, pri, cid, created, ttl, ttr,
#: cbury, ctaken.
FIXED_15 = 12
_STATUS_15 = {"r": "r", "d": "~", "t": "r", "b": "!", "*": "*"}
#: A decoded tuple, and its fields from the payload on as they came (a field, or an array of them).
Tuple = tuple[list[Any], bytes]


def _mark(name: str) -> str:
    return f"import:{name}"


def state(engine: Engine, name: Any) -> dict[str, Any] | None:
    """{source, last, count}: where a tube's tasks came from, the last key, how many; or None."""
    tube = engine.tubes.get(name) if type(name) is str else None
    if tube is None or not tube.space.next_id:
        # Dropped or emptied since: whatever was imported is no longer what this tube is.
        return None
    row = engine.config.rows.get(_mark(tube.name))
    return None if row is None else dict(row[1])


def fixed_fields(tube: Tube) -> int:
    """How many fields of a source's tuple are decoded; what follows is payload."""
    if isinstance(tube.inner, Queue15):
        return FIXED_15
    if BUILT_IN.get(tube.type) is not type(tube.inner):
        raise failure(f"Tasks cannot be imported into tubes of type {tube.type}")
    return len(tube.space.format) - 1


def take_in(engine: Engine, tube: Tube, source: Any, tuples: list[Tuple]) -> int:
    """Insert tasks in the order of their keys, behind what came before. How many in all so far."""
    if type(source) is not str or not source:
        raise failure("Invalid source: expected its name")
    if len(tuples) > BATCH_MAX:
        raise failure(f"Invalid number of tuples: {len(tuples)} (expected at most {BATCH_MAX})")
    known = state(engine, tube.name)
    if known is None and tube.space.next_id:
        raise failure(f"Tube {tube.name} has had tasks of its own: import into a new one")
    if known is not None and known["source"] != source:
        raise failure(f"Tube {tube.name} was imported from {known['source']}, not from {source}")
    last, count = (known["last"], known["count"]) if known else (None, 0)
    make = _row_15 if isinstance(tube.inner, Queue15) else _row
    for fields, payload in tuples:
        row = make(tube, fields, payload)
        if last is not None and (type(fields[0]) is not type(last) or fields[0] <= last):
            raise failure(f"Task {fields[0]} is not behind {last}, the last one imported")
        tube.space.insert(row)
        last = fields[0]
    if tuples:
        count += len(tuples)
        _write(engine, tube.name, {"source": source, "last": last, "count": count})
        engine.commit(KIND_OTHER, None)
        engine.woken.append(tube)
    return count


def _write(engine: Engine, name: str, value: dict[str, Any]) -> None:
    mark = _mark(name)
    if mark in engine.config.rows:
        engine.config.set(mark, 1, value)
    else:
        engine.config.insert((mark, value))


def _bad(fields: list[Any], what: str) -> Exception:
    return failure(f"Task {fields[0]} is not of the tube's layout: {what}")


def _row(tube: Tube, fields: list[Any], payload: bytes) -> Row:
    """A row of the queue module's five drivers; nobody here holds what is taken there."""
    types = [kind for _, kind in tube.space.format][:-1]
    for value, kind, (name, _) in zip(fields, types, tube.space.format, strict=False):
        if kind == "unsigned" and (type(value) is not int or not 0 <= value <= NEVER_US):
            raise _bad(fields, f"{name} is no unsigned integer")
        if kind == "string" and type(value) is not str:
            raise _bad(fields, f"{name} is no string")
    if fields[1] not in ("r", "t", "!", "~"):
        raise _bad(fields, f"unknown status {fields[1]}")
    if fields[1] == "t":
        fields[1] = "r"
        if tube.type not in ("fifo", "utube"):
            fields[NEXT_EVENT] = min(fields[CREATED] + fields[TTL], NEVER_US)
    return (*fields, payload)


def _number(fields: list[Any], at: int) -> int:
    """A number as 1.5 stored it: an integer, or the bytes of one, little-endian."""
    value = fields[at]
    if type(value) is str:
        value = value.encode("utf-8", "surrogateescape")
    if type(value) is bytes and len(value) in (1, 4, 8):
        value = int.from_bytes(value, "little")
    if type(value) is not int or not 0 <= value <= NEVER_US:
        raise _bad(fields, f"field {at} is no number")
    return value


def _row_15(tube: Tube, fields: list[Any], payload: bytes) -> Row:
    ident, lane, status = fields[:3]
    if type(ident) is not str or type(lane) is not str or status not in _STATUS_15:
        raise _bad(fields, "expected id, tube and a status of r d t b *")
    if isinstance(tube.inner, Queue15) and tube.inner.find(ident) is not None:
        raise _bad(fields, "its id is there already")
    event, ipri, pri, _, created, ttl, ttr, cbury, ctaken = (
        _number(fields, at) for at in range(3, FIXED_15)
    )
    if ipri > 255 or pri > 255:
        raise _bad(fields, "a priority is above 255")
    life = min(ttl, q.LONGEST_US)
    if status != "d":
        event = created + life
    task_id = tube.space.next_id
    rank = MIDDLE + ipri - q.IPRI
    turn = task_id if rank > MIDDLE else 0
    return (
        task_id, _STATUS_15[status], lane, ident, min(event, NEVER_US), rank, pri, turn,
        created, life, ttr, cbury, ctaken, payload,
    )  # fmt: skip
