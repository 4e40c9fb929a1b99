"""Begin and end of serving, and tasks given back because their owner is gone.

A driver that fails here keeps its own tube from working, never the node from serving the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandemq.model.record import KIND_OTHER, KIND_SESSION, KIND_STARTUP
from tandemq_server.engine import attempts, leases
from tandemq_server.engine.system_spaces import TAKEN_SESSION, TAKEN_TIME

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort, TubePort
    from tandemq_server.spaces.space import Row


Released = list[tuple["TubePort", "Row"]]


def start(engine: EnginePort) -> int:
    """`promote` and `serve` in one go. Number of tasks released."""
    released = promote(engine)
    serve(engine, released)
    return len(released)


def promote(engine: EnginePort, kind: int = KIND_STARTUP) -> Released:
    """Release what nobody may still claim; ownership of a shared session within `ttr` stays.

    One transaction, with whatever the caller has put into it before (the term record).
    """
    engine.sessions.restart(engine.ttr_us if engine.in_replicaset else 0)
    live = engine.sessions.space.rows
    released: Released = []
    for tube in engine.tubes.values():
        for task_id in _taken_ids(engine, tube):
            owner = engine.taken.rows.get((tube.id, task_id))
            if owner is not None and owner[TAKEN_SESSION] in live:
                continue
            if (row := _give_back(engine, tube, task_id, attempts.RESTART)) is not None:
                released.append((tube, row))
    _sweep_owners(engine)
    leases.prolong_tasks(engine, engine.frozen_us)
    engine.frozen_until = engine.now
    engine.commit(kind, None)
    return released


def serve(engine: EnginePort, released: Released) -> None:
    """Start drivers and timers, take calls; tell of what a promotion released.

    Since `promote` it waited for its commit: that time is no holder's fault either.
    """
    leases.prolong(engine, engine.now - engine.frozen_until)
    for tube in engine.tubes.values():
        start_driver(engine, tube)
    engine.running = True
    engine.sessions.left_meanwhile()
    _tell_released(released)
    engine.wake()


def _taken_ids(engine: EnginePort, tube: TubePort) -> list[int]:
    try:
        return [row[0] for row in tube.driver.tasks_by_state("t")]
    except Exception as error:
        _report(engine, tube, "tasks_by_state", error)
        return []


def _sweep_owners(engine: EnginePort) -> None:
    """Forget owners of what is not taken; never hand out a token twice."""
    by_id = {tube.id: tube for tube in engine.tubes.values()}
    for key, owner in list(engine.taken.rows.items()):
        engine.last_delivery = max(engine.last_delivery, owner[TAKEN_TIME])
        tube = by_id.get(key[0])
        row = None if tube is None else tube.space.rows.get(key[1])
        if row is None or row[1] != "t":
            engine.taken.disown(*key)


def start_driver(engine: EnginePort, tube: TubePort) -> None:
    """What a driver changes as it starts is a transaction of its own."""
    try:
        tube.driver.start(engine.now)
    except Exception as error:
        engine.store.rollback()
        _report(engine, tube, "start", error)
    engine.commit(KIND_OTHER, None)


def stop(engine: EnginePort) -> None:
    engine.running = False
    for tube in engine.tubes.values():
        stop_driver(engine, tube)


def stop_driver(engine: EnginePort, tube: TubePort) -> None:
    """A driver that stops may let go of what it holds, but no longer change tasks."""
    try:
        tube.driver.stop()
    except Exception as error:
        _report(engine, tube, "stop", error)
    engine.store.rollback()


def release_tasks_of(engine: EnginePort, session: bytes) -> None:
    """Give back everything a session holds; one broken task does not keep the others."""
    by_id = {tube.id: tube for tube in engine.tubes.values()}
    released: list[tuple[TubePort, Row]] = []
    for tube_id, task_id in sorted(engine.taken.by_session.get(session, ())):
        tube = by_id.get(tube_id)
        if tube is None or task_id not in tube.space.rows:
            engine.taken.disown(tube_id, task_id)
            engine.report(f"Inconsistent queue state: task {task_id} of tube {tube_id} not found")
        elif (row := _give_back(engine, tube, task_id, attempts.SESSION)) is not None:
            released.append((tube, row))
    engine.commit(KIND_SESSION, session)
    _tell_released(released)


def _give_back(engine: EnginePort, tube: TubePort, task_id: int, reason: str) -> Row | None:
    """Release a task on its owner's behalf; what goes wrong is taken back and reported."""
    store = engine.store
    ops, undo = len(store.ops), len(store.undo)
    try:
        return tube.give_back(task_id, None, reason)
    except Exception as error:
        store.rollback_to(ops, undo)
        _report(engine, tube, f"release of task {task_id}", error)
        return None


def _tell_released(released: Released) -> None:
    for tube, row in released:
        tube.calls["release"] += 1
        tube.tell(row, "release")


def _report(engine: EnginePort, tube: TubePort, what: str, error: Exception) -> None:
    engine.report(f"tube {tube.name}: {what} failed: {type(error).__name__}: {error}")
