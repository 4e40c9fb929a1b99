"""Time that does not count against those who hold something: nobody could hear them then.

While no node is RUNNING, and while the process of the one that is stood still, an ack, a touch or a
client's return would have found nobody. What a lease had left it has left afterwards: the ttr of
taken tasks, and the time in which a session may be claimed again. A task's ttl and delay are
promises about the clock on the wall, and go on. Costs as much as there are taken tasks; waiting
sessions cost one row together (engine/session_times.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandemq.model.record import KIND_OTHER
from tandemq_server.engine.system_spaces import TAKEN_TIME

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort


def prolong(engine: EnginePort, by_us: int, since: int | None = None) -> int:
    """Give all leases `by_us` more, in a record of its own. Number of tasks whose lease changed.

    since: leases given after this moment of the log's clock did not see the time go by.
    """
    sessions = engine.sessions.prolong(by_us, since)
    tasks = prolong_tasks(engine, by_us, since)
    if tasks or sessions:
        engine.commit(KIND_OTHER, None)
    return tasks


def prolong_tasks(engine: EnginePort, by_us: int, since: int | None = None) -> int:
    """The same for tasks alone, inside the caller's transaction."""
    if by_us <= 0:
        return 0
    store, changed = engine.store, 0
    by_id = {tube.id: tube for tube in engine.tubes.values()}
    for (tube_id, task_id), owner in list(engine.taken.rows.items()):
        if since is not None and owner[TAKEN_TIME] > since:
            continue
        tube = by_id.get(tube_id)
        row = None if tube is None else tube.space.rows.get(task_id)
        if tube is None or row is None or row[1] != "t":
            continue
        ops, undo = len(store.ops), len(store.undo)
        try:
            changed += tube.driver.prolong(task_id, by_us, engine.now) is not None
        except Exception as error:
            store.rollback_to(ops, undo)
            text = f"prolong of task {task_id} failed: {type(error).__name__}: {error}"
            engine.report(f"tube {tube.name}: {text}")
    return changed
