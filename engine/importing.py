"""Tasks from another server, in the layout of its spaces: ids, states and deadlines are kept.

The layouts: the queue module's five drivers, the 1.5 queue, and records of xqueue.

Rows and how far the import is are one record: what was taken in once never comes again, even when
it has been executed meanwhile. The mark is a row of `_tandem_config`, named `import:TUBE`.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from drivers import BUILT_IN
from drivers import queue15 as q
from drivers.deadlines import CREATED, NEXT_EVENT, TTL
from drivers.queue15 import Queue15
from drivers.xqueue import XQueue
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
#: A runat below ten years in seconds is of a clock that began at the machine's start.
MONOTONIC_BELOW_S = 10 * 365 * 86_400
_STATUS_15 = {"r": "r", "d": "~", "t": "r", "b": "!", "*": "*"}
#: A decoded tuple, and its fields from the payload on as they came (a field, or an array of them).
Tuple = tuple[list[Any], bytes]


def _mark(name: str) -> str:
    return f"import:{name}"


def state(engine: Engine, name: Any) -> dict[str, Any] | None:
    """{source, last, count}: where a tube's tasks came from, the last key, how many; or None."""
    tube = engine.tubes.get(name) if type(name) is str else None
    row = None if tube is None else engine.config.rows.get(_mark(tube.name))
    if tube is None or row is None:
        return None
    found = dict(row[1])
    # Dropped or emptied since: whatever was imported is no longer what this tube is. Records with
    # text for keys leave no number behind when they are gone, so the space is compared as well.
    if found.pop("space", tube.space.id) != tube.space.id:
        return None
    return found if tube.space.next_id or _text_keys(tube) else None


def _text_keys(tube: Tube) -> bool:
    return isinstance(tube.inner, XQueue) and tube.inner.layout.text_keys


def fixed_fields(tube: Tube) -> int | None:
    """How many fields of a source's tuple are decoded; what follows is payload. None for all."""
    if isinstance(tube.inner, XQueue):
        return None
    if isinstance(tube.inner, Queue15):
        return FIXED_15
    if BUILT_IN.get(tube.type) is not type(tube.inner):
        raise failure(f"Tasks cannot be imported into tubes of type {tube.type}")
    return len(tube.space.format) - 1


def take_in(engine: Engine, tube: Tube, source: Any, tuples: list[Tuple]) -> int:
    """Insert tasks in the order of their keys, behind what came before. How many in all so far."""
    if type(source) is not str or not source:
        raise failure("Invalid source: expected its name")
    if engine.full and tuples:
        raise failure(engine.full)
    if len(tuples) > BATCH_MAX:
        raise failure(f"Invalid number of tuples: {len(tuples)} (expected at most {BATCH_MAX})")
    known = state(engine, tube.name)
    if known is None and (tube.space.next_id or tube.space.rows):
        raise failure(f"Tube {tube.name} has had tasks of its own: import into a new one")
    if known is not None and known["source"] != source:
        raise failure(f"Tube {tube.name} was imported from {known['source']}, not from {source}")
    last, count = (known["last"], known["count"]) if known else (None, 0)
    now = engine.now
    for fields, payload in tuples:
        if isinstance(tube.inner, XQueue):
            row = _row_of_record(tube.inner, fields, now)
            key = row[0]
        elif isinstance(tube.inner, Queue15):
            row, key = _row_15(tube, fields, payload), fields[0]
        else:
            row, key = _row(tube, fields, payload), fields[0]
        if last is not None and (type(key) is not type(last) or key <= last):
            raise failure(f"Task {key} is not behind {last}, the last one imported")
        tube.space.insert(row)
        last = key
    if tuples:
        count += len(tuples)
        mark = {"source": source, "last": last, "count": count, "space": tube.space.id}
        _write(engine, tube.name, mark)
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


def _row_of_record(driver: XQueue, fields: list[Any], now: int) -> Row:
    """A record of xqueue. Its one timer field means what its status and the features say.

    Taken records are ready, as the original makes them at its start; a timer that was left behind
    by another status (on R without ttl, on T and B) means nothing and is dropped.
    """
    layout, features = driver.layout, driver.features
    if len(fields) > layout.width:
        raise failure(f"Record {fields[:1]} has more fields than the format of the tube")
    fields = fields + [None] * (layout.width - len(fields))
    key = layout.check_key(fields[layout.pk])
    letter = fields[layout.status]
    if type(letter) is not str or letter not in "RTWBZD" or len(letter) != 1:
        raise failure(f"Record {key}: unknown status {letter} (expected one of R T W B Z D)")
    runat = 0 if layout.runat is None else _moment(key, fields[layout.runat])
    life = 0 if driver.ttl is None else driver.ttl
    if letter == "T" or (letter == "R" and not (runat and "ttl" in features)):
        runat = now + life if letter == "T" and life else 0
    if letter == "R" or letter == "T":
        state = ("r", runat, "x" if runat else "", runat)
    elif letter == "W":
        state = ("~", runat, "w" if runat else "", runat + life if runat and life else 0)
    elif letter == "Z":
        state = ("z", runat, "z" if runat else "", 0)
    else:
        state = ("!" if letter == "B" else "d", 0, "", 0)
    return (key, *state, *layout.rest(fields))


def _moment(key: Any, value: Any) -> int:
    """A runat in seconds since the epoch as µs, 0 for none."""
    if value is None:
        return 0
    if type(value) not in (int, float) or not isfinite(value):
        raise failure(f"Record {key}: runat is no number of seconds")
    if value <= 0:
        return 0
    if value < MONOTONIC_BELOW_S:
        raise failure(
            f"Record {key}: !!! Queue contains monotonic runat. Consider updating tasks "
            "(https://github.com/moonlibs/xqueue/issues/2)"
        )
    return min(round(float(value) * 1_000_000), NEVER_US)
