"""Looking through a tube by state, sub-queue and age, and changing what was found in bulk.

Every call is bounded: it looks at so many rows and changes so many tasks, then answers with a
cursor to go on from. Ids ascend, so tasks that come and go in between are neither shown twice nor
skipped. A change in bulk is one transaction and one record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq.model.record import KIND_DELETE, KIND_KICK, KIND_OTHER
from tandemq.model.task import BURIED, DELAYED, READY, STATE_NAMES, TAKEN
from tandemq.model.units import MIB
from tandemq_server.drivers.base import sub_queue_name
from tandemq_server.drivers.deadlines import duration_us
from tandemq_server.engine import arguments, attempts, room

if TYPE_CHECKING:
    from tandemq_server.engine.clients import EngineClient
    from tandemq_server.engine.ports import TubePort
    from tandemq_server.spaces.space import Row

#: Rows looked at in one call.
SCAN_ROWS = 20_000
LIST_LIMIT, LIST_MAX = 100, 1000
#: Payload bytes in one page; a task larger than that stands alone.
LIST_BYTES = 4 * MIB
BULK_LIMIT, BULK_MAX = 1000, 10_000
FILTER = frozenset({"state", "utube", "older_than", "younger_than"})
ACTIONS = ("kick", "delete", "move")
_STATES = {name: status for status, name in STATE_NAMES.items() if name != "done"}


@dataclass(frozen=True, slots=True)
class Filter:
    """What to look for. Fields by their numbers, moments in µs; spared, only: states."""

    state: str | None
    utube_at: int
    utube: str | None
    created_at: int
    not_after: int | None
    not_before: int | None
    spared: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def accepts(self, row: Row) -> bool:
        if self.state is not None and row[1] != self.state:
            return False
        if row[1] in self.spared or (self.only and row[1] not in self.only):
            return False
        if self.utube is not None and row[self.utube_at] != self.utube:
            return False
        if self.not_after is not None and row[self.created_at] > self.not_after:
            return False
        return self.not_before is None or row[self.created_at] >= self.not_before


def parse(tube: TubePort, opts: dict[str, Any]) -> Filter:
    """{state, utube, older_than, younger_than}: ages in seconds since the put. Raises code 32."""
    state = opts.get("state")
    if state is not None:
        found = _STATES.get(state) if type(state) is str else None
        if found is None:
            raise failure(f"Invalid value of state: {state} (expected {', '.join(_STATES)})")
        state = found
    names = [name for name, _ in tube.space.format]
    utube = opts.get("utube")
    if utube is not None and "utube" not in names:
        raise failure(f"Invalid option utube: {tube.type} queue has no sub-queues")

    def moment(option: str) -> int | None:
        age = opts.get(option)
        if age is None:
            return None
        if "created" not in names:
            raise failure(f"Invalid option {option}: {tube.type} queue keeps no time of the put")
        return tube.engine.now - duration_us(option, age)

    return Filter(
        state,
        names.index("utube") if "utube" in names else 0,
        None if utube is None else sub_queue_name({"utube": utube}),
        names.index("created") if "created" in names else 0,
        moment("older_than"),
        moment("younger_than"),
    )


def find(tube: TubePort, wanted: Filter, after: int, limit: int) -> tuple[list[Row], int | None]:
    """Up to `limit` rows with ids above `after`, and where to go on (None: that was all)."""
    rows = tube.space.rows
    candidates, last = _candidates(tube, after)
    found: list[Row] = []
    for task_id in candidates:
        row = rows.get(task_id)
        if row is None or not wanted.accepts(row):
            continue
        if len(found) == limit:
            return found, found[-1][0] if found else after
        found.append(row)
    return found, last


def _candidates(tube: TubePort, after: int) -> tuple[Iterable[int], int | None]:
    """(ids to look at in ascending order, the last of them if more may follow)."""
    rows = tube.space.rows
    if len(rows) <= SCAN_ROWS:
        return sorted(task_id for task_id in rows if task_id > after), None
    start = max(after + 1, min(rows))
    end = start + SCAN_ROWS
    if end >= tube.space.next_id:
        return range(start, tube.space.next_id), None
    return range(start, end), end - 1


def page(tube: TubePort, opts: Any) -> tuple[list[Row], int | None]:
    """`TUBE:list`: (tasks as clients see them, cursor). Filter, `limit` (100), `after`."""
    given = arguments.task_options(opts, FILTER | {"limit", "after"}, "list") or {}
    limit = _bound(given, LIST_LIMIT, LIST_MAX)
    rows, cursor = find(tube, parse(tube, given), _after(given), limit)
    shown: list[Row] = []
    size = 0
    for row in rows:
        task = tube.shown(row)
        size += len(task[-1])
        if shown and size > LIST_BYTES:
            return shown, shown[-1][0]
        shown.append(task)
    return shown, cursor


def bulk(
    tube: TubePort, client: EngineClient, action: Any, opts: Any, may_put: Callable[[str], None]
) -> dict[str, Any]:
    """`TUBE:bulk`: {count, cursor}, one record. With `dry_run` only counts.

    kick: buried tasks (or delayed ones, if asked for by state) become ready. delete: all but taken
    ones, and those if asked for by state. move: all but taken ones, and what a type keeps although
    it is done, go to the tube `to`.
    """
    known = FILTER | {"limit", "after", "dry_run", "to"}
    given = arguments.task_options(opts, known, "bulk") or {}
    if action not in ACTIONS:
        raise failure(f"Invalid action: {action} (expected {', '.join(ACTIONS)})")
    dry_run = given.get("dry_run")
    if dry_run is not None and type(dry_run) is not bool:
        raise failure(f"Invalid value of dry_run: {dry_run} (expected true or false)")
    if given.get("to") is not None and action != "move":
        raise failure(f"Invalid option to: {action} moves nothing")
    wanted = _narrowed(tube, action, given)
    target = _target(tube, given.get("to"), may_put) if action == "move" else None
    limit = SCAN_ROWS if dry_run else _bound(given, BULK_LIMIT, BULK_MAX)
    # Taken tasks belong to somebody: they are left alone unless asked for.
    spared = (TAKEN,) if wanted.get("state") is None else ()
    # What is done would be there to be taken again.
    only = (READY, DELAYED, BURIED) if action == "move" else ()
    chosen = replace(parse(tube, wanted), spared=spared, only=only)
    rows, cursor = find(tube, chosen, _after(given), limit)
    if rows and not dry_run:
        if target is not None:
            _move(tube, client, target, rows)
        elif action == "kick":
            _kick(tube, client, rows)
        else:
            _delete(tube, client, rows)
    return {"count": len(rows), "cursor": cursor}


def _narrowed(tube: TubePort, action: str, given: dict[str, Any]) -> dict[str, Any]:
    """The filter with what the action implies; states it cannot be done to are refused."""
    state = given.get("state")
    if action == "kick":
        if state not in (None, "buried", "delayed"):
            raise failure(f"Invalid value of state: {state} tasks cannot be kicked")
        if state == "delayed" and not tube.driver.delays:
            raise failure(f"Invalid value of state: {tube.type} queue does not support delays")
        return {"state": "buried"} | {k: v for k, v in given.items() if v is not None}
    if action == "move" and state == "taken":
        raise failure("Invalid value of state: taken tasks cannot be moved, release them first")
    return given


def _kick(tube: TubePort, client: EngineClient, rows: list[Row]) -> None:
    engine, driver = tube.engine, tube.driver
    ready = []
    for row in rows:
        if row[1] == BURIED:
            tube.notebook.begin_anew(tube.id, row[0])
            ready.append(driver.kick_one(row[0], engine.now))
        else:
            assert row[1] == DELAYED
            ready.append(driver.release(row[0], None, engine.now))
    tube.calls["kick"] += len(ready)
    engine.commit(KIND_KICK, client.session)
    for row in ready:
        tube.tell(row, "kick")


def _delete(tube: TubePort, client: EngineClient, rows: list[Row]) -> None:
    gone, owners = [], []
    for row in rows:
        gone.append(tube.driver.delete(row[0], tube.engine.now))
        owners.append(tube.taken.disown(tube.id, row[0]))
        tube.notebook.forget(tube.id, row[0])
    tube.engine.commit(KIND_DELETE, client.session)
    tube.engine.lookout.tell_all(tube, owners, client, "it was deleted")
    _told_gone(tube, gone)


def _move(tube: TubePort, client: EngineClient, target: TubePort, rows: list[Row]) -> None:
    size = sum(len(tube.shown(row)[-1]) for row in rows)
    if target.driver.capacity and not room.has(target, len(rows), size):
        raise room.no_room_for(target, len(rows), size)
    gone = [attempts.move(tube, target, row[0])[1] for row in rows]
    tube.engine.commit(KIND_OTHER, client.session)
    attempts.tell_moved(tube.engine)
    _told_gone(tube, gone)


def _told_gone(tube: TubePort, gone: list[Row]) -> None:
    tube.calls["delete"] += len(gone)
    tube.done += len(gone)
    for row in gone:
        tube.tell(row, "delete")


def _target(tube: TubePort, name: Any, may_put: Callable[[str], None]) -> TubePort:
    if type(name) is not str:
        raise failure("Invalid value of to: expected the name of a tube")
    may_put(name)
    target = tube.engine.tubes.get(name)
    if target is None or target is tube:
        raise failure(f"Invalid value of to: {name} (expected the name of another tube)")
    return target


def _bound(given: dict[str, Any], default: int, most: int) -> int:
    limit = given.get("limit")
    if limit is None:
        return default
    if type(limit) is not int or not 1 <= limit <= most:
        raise failure(f"Invalid value of limit: {limit} (expected 1 to {most})")
    return limit


def _after(given: dict[str, Any]) -> int:
    after = given.get("after")
    return -1 if after is None else arguments.task_id(after, 1)
