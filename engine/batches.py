"""Calls on many tasks at once: one transaction, one record, all or nothing.

put_many([[data, opts], ...], common opts) / take_many(count, timeout) / ack_many([id, ...]) /
release_many([id, ...], opts). A put answers with the new ids, a take with tasks, the others with
how many it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.bounds import RECORD_BYTES_MAX, RECORD_HEAD_BYTES
from tandemq.model.errors import failure, not_taken, task_not_found
from tandemq.model.record import (
    KIND_ACK_MANY,
    KIND_PUT_MANY,
    KIND_RELEASE_MANY,
    KIND_TAKE_MANY,
    check_record,
)
from tandemq_server.drivers.base import Driver
from tandemq_server.engine import arguments, attempts, expiry, keys, room
from tandemq_server.engine.clients import PENDING, EngineClient, _Sentinel

if TYPE_CHECKING:
    from tandemq_server.engine.ports import TubePort
    from tandemq_server.spaces.space import Row

#: Tasks in one batch; more is the caller's mistake, not a reason to hold up everybody else.
BATCH_MAX = 10_000


def put_many(
    tube: TubePort, client: EngineClient, items: list[tuple[bytes, Any]], common: Any = None
) -> list[int]:
    """New tasks from (raw payload, options); `common` options hold where an item has none.

    Returns their ids, of a task whose key was used before the first one's.
    """
    _check_size(len(items))
    common = arguments.task_options(common, tube.put_options)
    engine = tube.engine
    driver = tube.driver
    keyed = None
    plain = common is None and not [1 for item in items if item[1] is not None]
    if not plain:
        items = _with_options(tube, common, items)
        if getattr(type(driver), "check_put", None) is not Driver.check_put:
            for _, opts in items:
                driver.check_put(opts)
        if any(keys.has_key(opts) for _, opts in items):
            keyed = keys.split_many(tube, items)
    if driver.capacity:
        if keyed is None:
            new, size = len(items), sum(len(data) for data, _ in items)
        else:
            new, size = keys.new_among(tube, keyed)
        if not room.has(tube, new, size):
            raise room.no_room_for(tube, new, size)
    if keyed is None:
        rows = driver.put_many(items, engine.now)
        ids = [row[0] for row in rows]
    else:
        rows, ids = keys.insert_many(tube, keyed)
    if len(rows) > engine.unmeasured and not (plain and _far_below(items)):
        check_record(engine.store.ops)
    engine.commit(KIND_PUT_MANY, client.session)
    tube.calls["put"] += len(rows)
    if tube.callback is not None:
        for row in rows:
            tube.notify(row, "put")
    if tube.waiters:
        engine.woken.append(tube)
    return ids


def _far_below(items: list[tuple[bytes, Any]]) -> bool:
    """Whether the tasks fit a record several times, by their payloads' sizes: nothing is packed.

    Without options a row is made of its payload alone, some fields of it a second time perhaps.
    """
    payloads = sum([len(item[0]) for item in items])
    return 4 * payloads + RECORD_HEAD_BYTES * 16 * len(items) <= RECORD_BYTES_MAX


def _with_options(
    tube: TubePort, common: dict[str, Any] | None, items: list[tuple[bytes, Any]]
) -> list[tuple[bytes, dict[str, Any] | None]]:
    """A batch with its options checked, the common ones among them."""
    if common is not None:
        return [(data, _merge(tube, common, opts)) for data, opts in items]
    known, others = tube.put_options, arguments.task_options
    return [
        (data, opts)
        if type(opts) is dict and opts and known.issuperset(opts)
        else (data, others(opts, known))
        for data, opts in items
    ]


def _merge(tube: TubePort, common: dict[str, Any] | None, opts: Any) -> dict[str, Any] | None:
    own = arguments.task_options(opts, tube.put_options)
    if common and "key" in common:
        raise failure("Invalid option key: each task of a batch has a key of its own")
    if common and "window" in common and (not own or own.get("key") is None):
        common = {option: value for option, value in common.items() if option != "window"}
    if not common or not own:
        return own or common
    return {**common, **own}


def take_many(
    tube: TubePort,
    client: EngineClient,
    ticket: Any,
    count: Any,
    timeout: Any = 0,
    token: bool | str = False,
) -> list[Row] | _Sentinel:
    """Up to `count` ready tasks; with a timeout, wait for the first one if there is none."""
    count = arguments.kick_count(count)
    _check_size(count)
    wait_us = arguments.timeout_us(timeout)
    rows = take_now(tube, client, count, token)
    if rows or not count or not wait_us:
        return rows
    waiter = tube.engine.park(client, ticket, tube, wait_us, token)
    waiter.many = count
    tube.waiters[waiter.id] = waiter
    return PENDING


def take_now(tube: TubePort, client: EngineClient, count: int, token: bool | str) -> list[Row]:
    """Up to `count` tasks that are ready, committed to the client; it may be none."""
    engine = tube.engine
    rows = tube.driver.take_many(count, engine.now)
    while rows and rows[0][1] != "t":
        expiry.expire(tube, rows[0][0])
        if tube.space.rows.get(rows[0][0]) == rows[0]:
            raise failure(f"driver {tube.type} offers task {rows[0][0]} and does not expire it")
        rows = tube.driver.take_many(count, engine.now)
    if not rows:
        return []
    shown = _normal(tube, rows)
    session = engine.sessions.of(client)
    first = max(engine.last_delivery + 1, engine.now)
    engine.last_delivery = first + len(rows) - 1
    tube_id, client_id = tube.id, client.id
    owned = [(tube_id, row[0], client_id, session, first + n) for n, row in enumerate(rows)]
    tube.taken.own_many(owned, session)
    tube.calls["take"] += len(rows)
    engine.commit(KIND_TAKE_MANY, session)
    if tube.callback is not None:
        for row in rows:
            tube.notify(row, "take")
    if token:
        return [attempts.delivered(tube, row, first + n, token) for n, row in enumerate(shown)]
    return shown


def ack_many(tube: TubePort, client: EngineClient, ids: Any) -> int:
    """Finish tasks, each an id or [id, token]; if one may not be acked, none is. How many."""
    keys = _owned(tube, client, ids)
    if not keys:
        return 0
    engine = tube.engine
    session = client.session
    assert session is not None
    wanted = [key[1] for key in keys]
    rows = tube.driver.delete_many(wanted, engine.now)
    tube.taken.disown_many(keys, session)
    for task_id in wanted if tube.notes else ():
        tube.notebook.forget(tube.id, task_id)
    tube.calls["ack"] += len(rows)
    tube.done += len(rows)
    engine.commit(KIND_ACK_MANY, session)
    if tube.callback is not None:
        for row in rows:
            tube.notify((row[0], "-", *row[2:]), "delete")
    if tube.waiters or tube.blocked:
        engine.woken.append(tube)
    return len(rows)


def release_many(tube: TubePort, client: EngineClient, ids: Any, opts: Any = None) -> int:
    """Give tasks back, each an id or [id, token]; if one may not be released, none is. How many."""
    opts = arguments.task_options(opts, tube.release_options, "release")
    reason = attempts.reason_of(tube, opts, attempts.RELEASED)
    rows = [tube.give_back(key[1], opts, reason) for key in _owned(tube, client, ids)]
    tube.calls["release"] += len(rows)
    tube.engine.commit(KIND_RELEASE_MANY, client.session)
    for row in rows:
        tube.tell(row, "release")
    return len(rows)


def _owned(tube: TubePort, client: EngineClient, ids: Any) -> list[tuple[int, int]]:
    """Tube and id of each task of a batch, all checked; one that stands there twice is refused."""
    if type(ids) is not list:
        raise failure(f"Invalid list of tasks: expected an array, got {arguments.lua_type(ids)}")
    _check_size(len(ids))
    rows = tube.space.rows
    owners = tube.taken.rows
    tube_id, session = tube.id, client.session
    # Nearly always all is well, which is seen at once; else the first fault is what counts.
    if session is not None and set(map(type, ids)) == {int} and len(set(ids)) == len(ids):
        mine = tube.taken.by_session.get(session, {})
        keys = [(tube_id, task_id) for task_id in ids]
        if all(map(mine.__contains__, keys)) and all(map(rows.__contains__, ids)):
            return keys
    wanted: dict[tuple[int, int], None] = {}
    for item in ids:
        if type(item) is int:
            owner = owners.get((tube_id, item))
            if owner is None or owner[3] != session:
                raise not_taken()
            task_id = item
        else:
            task_id = _checked(tube, client, item)
        if task_id not in rows:
            raise task_not_found(task_id)
        wanted[tube_id, task_id] = None
    if len(wanted) != len(ids):
        raise failure("A task is in the list twice")
    return list(wanted)


def _checked(tube: TubePort, client: EngineClient, item: Any) -> int:
    """One id in another shape than a plain integer, its owner (and token) checked."""
    token = None
    if type(item) is list:
        if len(item) != 2:
            raise failure("Invalid list of tasks: expected ids or [id, token] pairs")
        item, token = item
    task_id = arguments.task_id(item, 2)
    tube.check_owner(client, task_id, token)
    return task_id


def _check_size(count: int) -> None:
    if count > BATCH_MAX:
        raise failure(f"Too many tasks in one batch: {count} (at most {BATCH_MAX})")


def _normal(tube: TubePort, rows: list[Row]) -> list[Row]:
    return rows if tube.normalize is None else [tube.normalize(row) for row in rows]
