"""Serving those who wait: takes that wait for a task, puts that wait for room.

Called once what happened is committed and answered; strictly in order of arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandemq.model.errors import QueueError, failure
from tandemq.model.record import KIND_PUT
from tandemq_server.engine import batches, expiry, keys, room

if TYPE_CHECKING:
    from tandemq_server.engine.clients import Waiter
    from tandemq_server.engine.ports import TubePort
    from tandemq_server.spaces.space import Row


def serve(tube: TubePort) -> None:
    """Pair what became possible with who waits for it.

    A driver that fails here fails whoever is first in line, as if it had just called.
    """
    unpark = tube.engine.unpark
    outcome: Row | list[Row] | QueueError | None
    while tube.blocked and _fits(tube, next(iter(tube.blocked.values()))):
        waiter = unpark(tube.blocked.popitem(last=False)[1])
        try:
            outcome = _put(tube, waiter)
        except Exception as error:
            outcome = failed(tube, error)
        waiter.client.deliver(waiter.ticket, outcome)
    while tube.waiters:
        waiter = next(iter(tube.waiters.values()))
        try:
            outcome = _take(tube, waiter)
        except Exception as error:
            outcome = failed(tube, error)
        if not outcome:
            return
        del tube.waiters[waiter.id]
        unpark(waiter)
        waiter.client.deliver(waiter.ticket, outcome)


def _fits(tube: TubePort, waiter: Waiter) -> bool:
    assert waiter.data is not None
    return room.has(tube, 1, len(waiter.data))


def _put(tube: TubePort, waiter: Waiter) -> Row:
    assert waiter.data is not None
    if waiter.opts is not None and keys.has_key(waiter.opts):
        row, shown = keys.put_waiting(tube, waiter.data, waiter.opts)
        if row is None:
            return shown
    else:
        row = tube.driver.put(waiter.data, waiter.opts, tube.engine.now)
        shown = tube.shown(row)
    engine = tube.engine
    engine.putter = engine.usage.counted(waiter.client.user)
    try:
        engine.commit(KIND_PUT, waiter.client.session)
    finally:
        engine.putter = None
    tube.calls["put"] += 1
    if tube.callback is not None:
        tube.notify(row, "put")
    return shown


def _take(tube: TubePort, waiter: Waiter) -> Row | list[Row] | None:
    if waiter.many:
        return batches.take_now(tube, waiter.client, waiter.many, waiter.token)
    row = expiry.past_overdue(tube, tube.driver.take(tube.engine.now))
    return None if row is None else tube.delivered(waiter.client, row, waiter.token)


def failed(tube: TubePort, error: Exception) -> QueueError:
    """Take back what a failed call changed; what its caller is told."""
    tube.engine.store.rollback()
    if isinstance(error, QueueError):
        return error
    text = f"{type(error).__name__}: {error}"
    tube.engine.report(f"tube {tube.name}: {text}", error)
    return failure(f"Internal error: {text}")
