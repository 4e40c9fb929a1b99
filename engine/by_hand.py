"""What an operator does to single tasks, whoever holds them: kick, bury, release, delete, move.

Each task is a transaction of its own, so that one that is gone does not keep the others. Whether
the node may change anything is the caller's question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tandemq.model.errors import failure, task_not_found
from tandemq.model.record import KIND_KICK, KIND_OTHER, KIND_RELEASE
from tandemq.model.task import BURIED, DELAYED, TAKEN
from tandemq.model.units import SECOND_US
from tandemq_server.engine import room
from tandemq_server.engine.clients import EngineClient

if TYPE_CHECKING:
    from tandemq_server.engine.ports import TubePort
    from tandemq_server.spaces.space import Row

Action = Literal["kick", "bury", "release", "delete", "move"]
ACTIONS: tuple[Action, ...] = ("kick", "bury", "release", "delete", "move")
#: The call a client without a session makes.
_NOBODY = EngineClient(0)


def act(tube: TubePort, task_id: int, action: Action, target: TubePort | None = None) -> None:
    """One action on one task. Raises `QueueError` with one line; then nothing has changed.

    kick: buried to ready; bury: set aside; release: a taken one to ready; delete; move: put the
    payload into `target` and delete it here, in one transaction.
    """
    row = tube.space.rows.get(task_id)
    if row is None:
        raise task_not_found(task_id)
    try:
        if action == "delete":
            tube.delete(_NOBODY, task_id)
        elif action == "bury":
            tube.bury(_NOBODY, task_id)
        elif action == "kick":
            _kick(tube, row)
        elif action == "release":
            _release(tube, row)
        else:
            assert target is not None
            _move(tube, row, target)
    except BaseException:
        tube.engine.store.rollback()
        raise


def _kick(tube: TubePort, row: Row) -> None:
    if row[1] != BURIED:
        raise failure(f"task {row[0]} is not buried")
    new = tube.driver.kick_one(row[0], tube.engine.now)
    tube.notebook.begin_anew(tube.id, row[0])
    tube.calls["kick"] += 1
    tube.engine.commit(KIND_KICK, None)
    tube.tell(new, "kick")


def _release(tube: TubePort, row: Row) -> None:
    if row[1] != TAKEN:
        raise failure(f"task {row[0]} is not taken")
    owner = tube.taken.rows.get((tube.id, row[0]))
    new = tube.give_back(row[0], None)
    tube.calls["release"] += 1
    tube.engine.commit(KIND_RELEASE, None)
    tube.engine.lookout.tell(tube, owner, None, "an operator gave it back")
    tube.tell(new, "release")


def _move(tube: TubePort, row: Row, target: TubePort) -> None:
    """Priority, sub-queue and what is left of a delay go along; ttl and ttr are the target's."""
    if target is tube:
        raise failure(f"task {row[0]} is in {tube.name} already")
    if row[1] == TAKEN:
        raise failure(f"task {row[0]} is taken: release it first")
    if target.driver.capacity and not room.has(target, 1, len(tube.shown(row)[-1])):
        raise failure(f"tube {target.name} is full")
    engine = tube.engine
    payload = tube.shown(row)[-1]
    put = target.driver.put(payload, _options(tube, row), engine.now)
    gone = tube.driver.delete(row[0], engine.now)
    tube.notebook.forget(tube.id, row[0])
    tube.calls["delete"] += 1
    tube.done += 1
    target.calls["put"] += 1
    engine.commit(KIND_OTHER, None)
    tube.tell(gone, "delete")
    target.tell(put, "put")


def _options(tube: TubePort, row: Row) -> dict[str, Any] | None:
    """What a put of the same task elsewhere is given; drivers ignore options they do not know."""
    found: dict[str, Any] = {}
    for at, (name, _) in enumerate(tube.space.format):
        if name in ("pri", "utube"):
            found[name] = row[at]
        elif name == "next_event" and row[1] == DELAYED:
            found["delay"] = max(0, row[at] - tube.engine.now) / SECOND_US
    return found or None
