"""Tasks from another server, in the layout of its spaces: ids, states and deadlines are kept.

The layout of the queue module's five drivers is here; a tube of another system has its own.

Rows and how far the import is are one record: what was taken in once never comes again, even when
it has been executed meanwhile. The mark is a row of `_tandem_config`, named `import:TUBE`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq.model.record import KIND_OTHER
from tandemq.model.task import NEVER_US
from tandemq_server.drivers import BUILT_IN
from tandemq_server.drivers.deadlines import CREATED, NEXT_EVENT, TTL
from tandemq_server.spaces.space import Row

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort, TubePort

BATCH_MAX = 10_000
#: A decoded tuple, and its fields from the payload on as they came (a field, or an array of them).
Tuple = tuple[list[Any], bytes]


def _mark(name: str) -> str:
    return f"import:{name}"


def state(engine: EnginePort, name: Any) -> dict[str, Any] | None:
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


def _text_keys(tube: TubePort) -> bool:
    layout = tube.layout()
    return layout is not None and layout.text_keys


def fixed_fields(tube: TubePort) -> int | None:
    """How many fields of a source's tuple are decoded; what follows is payload. None for all."""
    layout = tube.layout()
    if layout is not None:
        return layout.fixed
    if BUILT_IN.get(tube.type) is not type(tube.inner):
        raise failure(f"Tasks cannot be imported into tubes of type {tube.type}")
    return len(tube.space.format) - 1


def take_in(engine: EnginePort, tube: TubePort, source: Any, tuples: list[Tuple]) -> int:
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
    now, layout = engine.now, tube.layout()
    for fields, payload in tuples:
        if layout is None:
            row, key = _row(tube, fields, payload), fields[0]
        else:
            row, key = layout.row(fields, payload, now)
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


def _write(engine: EnginePort, name: str, value: dict[str, Any]) -> None:
    mark = _mark(name)
    if mark in engine.config.rows:
        engine.config.set(mark, 1, value)
    else:
        engine.config.insert((mark, value))


def _bad(fields: list[Any], what: str) -> Exception:
    return failure(f"Task {fields[0]} is not of the tube's layout: {what}")


def _row(tube: TubePort, fields: list[Any], payload: bytes) -> Row:
    """A row of the queue module's five drivers; nobody here holds what is taken there."""
    types = [kind for _, kind in tube.space.format][:-1]
    for value, kind, (name, _) in zip(fields, types, tube.space.format, strict=False):
        if kind == "unsigned" and (type(value) is not int or not 0 <= value <= NEVER_US):
            raise _bad(fields, f"{name} is not an unsigned integer")
        if kind == "string" and type(value) is not str:
            raise _bad(fields, f"{name} is no string")
    if fields[1] not in ("r", "t", "!", "~"):
        raise _bad(fields, f"unknown status {fields[1]}")
    if fields[1] == "t":
        fields[1] = "r"
        if tube.type not in ("fifo", "utube"):
            fields[NEXT_EVENT] = min(fields[CREATED] + fields[TTL], NEVER_US)
    return (*fields, payload)
