"""Deadlines of tasks: one that is due, and those a take comes upon before their turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandemq.model.errors import failure
from tandemq_server.engine import attempts

if TYPE_CHECKING:
    from tandemq_server.engine.ports import TubePort
    from tandemq_server.spaces.space import Row


def expire(tube: TubePort, task_id: int) -> None:
    """A deadline of one task is due: one transaction, however many events."""
    engine = tube.engine
    owner = tube.taken.rows.get((tube.id, task_id))
    events = tube.driver.expire(task_id, engine.now)
    if tube.policy is not None:
        events = attempts.expired(tube, events)
    for _, row in events:
        if row[1] != "t":
            tube.taken.disown(tube.id, row[0])
        if row[1] == "-" and tube.notes:
            tube.notebook.forget(tube.id, row[0])
    engine.commit(engine.event_kind(events[-1][0] if events else ""), None)
    engine.lookout.tell(tube, owner, None, "its time ran out")
    for event, row in events:
        if event == "delete":
            tube.done += 1
        tube.calls[event] = tube.calls.get(event, 0) + 1
        tube.tell(row, event)


def past_overdue(tube: TubePort, row: Row | None) -> Row | None:
    """Expire what a take came upon until it meets a task to deliver.

    A ttl of nothing gets here, and a flood of deadlines that one tick could not handle.
    """
    while row is not None and row[1] != "t":
        expire(tube, row[0])
        if tube.space.rows.get(row[0]) == row:
            raise failure(f"driver {tube.type} offers task {row[0]} and does not expire it")
        row = tube.driver.take(tube.engine.now)
    return row
