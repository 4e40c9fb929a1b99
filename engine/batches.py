"""Calls on many tasks at once: one transaction, one record, all or nothing.

put_many([[data, opts], ...], common opts) / take_many(count, timeout) / ack_many([id, ...]) /
release_many([id, ...], opts). Results are lists of tasks in the order of the arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine import arguments
from engine.clients import PENDING, Client, Delivery, _Sentinel
from model.errors import failure, task_not_found
from model.record import KIND_ACK_MANY, KIND_PUT_MANY, KIND_RELEASE_MANY, KIND_TAKE_MANY

if TYPE_CHECKING:
    from engine.tube import Tube
    from spaces.space import Row

#: Tasks in one batch; more is the caller's mistake, not a reason to hold up everybody else.
BATCH_MAX = 10_000


def put_many(
    tube: Tube, client: Client, items: list[tuple[bytes, Any]], common: Any = None
) -> list[Row]:
    """New tasks from (raw payload, options); `common` options hold where an item has none."""
    _check_size(len(items))
    common = None if common is None else arguments.put_options(common)
    engine = tube.engine
    driver = tube.driver
    if driver.capacity and len(tube.space.rows) + len(items) > driver.capacity:
        raise failure(f"No room for {len(items)} tasks (capacity {driver.capacity})")
    put = driver.put
    now = engine.now
    rows: list[Row] = []
    for data, opts in items:
        rows.append(put(data, common if opts is None else _merge(common, opts), now))
    tube.calls["put"] += len(rows)
    engine.commit(KIND_PUT_MANY, client.session)
    if tube.callback is not None:
        for row in rows:
            tube.notify(row, "put")
    if tube.waiters:
        engine.woken.append(tube)
    return _normal(tube, rows)


def _merge(common: dict[str, Any] | None, opts: Any) -> dict[str, Any] | None:
    own = arguments.put_options(opts)
    if not common or not own:
        return own or common
    return {**common, **own}


def take_many(
    tube: Tube, client: Client, ticket: Any, count: Any, timeout: Any = 0, token: bool = False
) -> list[Row] | _Sentinel:
    """Up to `count` ready tasks; with a timeout, wait for the first one if there is none."""
    count = arguments.kick_count(count)
    _check_size(count)
    wait_us = arguments.timeout_us(timeout)
    engine = tube.engine
    session = engine.sessions.of(client)
    take = tube.driver.take
    now = engine.now
    rows: list[Row] = []
    while len(rows) < count and (row := take(now)) is not None:
        tube.own(row[0], client, session)
        if token:
            row = Delivery((row[0], row[1], engine.last_delivery, row[-1]))
        rows.append(row)
    if not rows and count and wait_us:
        engine.commit(KIND_TAKE_MANY, session)
        waiter = engine.park(client, ticket, tube, wait_us, token)
        waiter.many = count
        tube.waiters[waiter.id] = waiter
        return PENDING
    tube.calls["take"] += len(rows)
    engine.commit(KIND_TAKE_MANY, session)
    if tube.callback is not None:
        for row in rows:
            tube.notify(row, "take")
    return rows if token else _normal(tube, rows)


def ack_many(tube: Tube, client: Client, ids: Any) -> list[Row]:
    """Finish tasks, each an id or [id, token]; if one may not be acked, none is."""
    wanted = _owned(tube, client, ids)
    engine = tube.engine
    delete = tube.driver.delete
    rows = []
    for task_id in wanted:
        rows.append(delete(task_id, engine.now))
        tube.taken.delete((tube.id, task_id))
    tube.calls["ack"] += len(rows)
    tube.done += len(rows)
    engine.commit(KIND_ACK_MANY, client.session)
    if tube.callback is not None:
        for row in rows:
            tube.notify(row, "delete")
    if tube.waiters or tube.blocked:
        engine.woken.append(tube)
    return _normal(tube, rows)


def release_many(tube: Tube, client: Client, ids: Any, opts: Any = None) -> list[Row]:
    """Give tasks back, each an id or [id, token]; if one may not be released, none is."""
    opts = arguments.release_options(opts)
    rows = [tube.give_back(task_id, opts) for task_id in _owned(tube, client, ids)]
    tube.engine.commit(KIND_RELEASE_MANY, client.session)
    for row in rows:
        tube.readied(row, "release")
    return _normal(tube, rows)


def _owned(tube: Tube, client: Client, ids: Any) -> dict[int, None]:
    """The ids of a batch, each checked; a repeated id is refused like a task not taken."""
    if type(ids) is not list:
        raise failure(f"Invalid list of tasks: expected an array, got {arguments.lua_type(ids)}")
    _check_size(len(ids))
    rows = tube.space.rows
    wanted: dict[int, None] = {}
    for item in ids:
        token = None
        if type(item) is list:
            if len(item) != 2:
                raise failure("Invalid list of tasks: expected ids or [id, token] pairs")
            item, token = item
        task_id = arguments.task_id(item, 2)
        tube.check_owner(client, task_id, token)
        if task_id not in rows:
            raise task_not_found(task_id)
        if task_id in wanted:
            raise failure(f"Task {task_id} stands twice in the list")
        wanted[task_id] = None
    return wanted


def _check_size(count: int) -> None:
    if count > BATCH_MAX:
        raise failure(f"Too many tasks in one batch: {count} (at most {BATCH_MAX})")


def _normal(tube: Tube, rows: list[Row]) -> list[Row]:
    return rows if tube.normalize is None else [tube.normalize(row) for row in rows]
