"""Attempts: counted when one ends without an ack, retried later, given up after so many.

An attempt is a delivery. It ends badly by `release`, `bury`, its ttr, or the loss of the session
that held it. The count, the reason and the moment are a note (notes.py), written in the record that
ends the attempt; a task that succeeds at once leaves no note. A task that is given up is in exactly
one place at any moment: leaving its tube and entering the dead-letter tube is one record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq.model.record import KIND_OTHER
from tandemq.model.task import DELAYED, INFINITY_S
from tandemq.model.units import SECOND_US
from tandemq_server.drivers.base import Event
from tandemq_server.engine import facts, headers
from tandemq_server.engine.arguments import lua_type
from tandemq_server.engine.clients import Delivery
from tandemq_server.engine.notes import (
    NOTE_ATTEMPTS,
    NOTE_FROM,
    NOTE_FROM_ATTEMPTS,
    NOTE_FROM_ID,
    NOTE_REASON,
    NOTE_TIME,
    failures_of,
)
from tandemq_server.spaces.space import Row

if TYPE_CHECKING:
    from tandemq_server.engine.clients import EngineClient
    from tandemq_server.engine.ports import EnginePort, TubePort

REASON_BYTES_MAX = 1000
#: Why an attempt ended, where nobody said more.
RELEASED, TTR, SESSION, RESTART, BURIED = (
    "released",
    "ttr expired",
    "session lost",
    "not acked before the node stopped serving",
    "buried",
)
BURY_OPTIONS = frozenset({"reason"})
#: Tasks moved back by one call.
REDRIVE_MAX = 10_000
#: What a task takes along into another tube, if that knows it: fields of its row.
_CARRIED = ("pri", "utube")


def reason_of(tube: TubePort, opts: dict[str, Any] | None, default: str) -> str:
    """The caller's `reason`, for a tube that keeps it."""
    reason = opts.get("reason") if opts else None
    if reason is None:
        return default
    if tube.policy is None:
        raise failure("Invalid option reason: the tube counts no attempts (see max_attempts)")
    if type(reason) is bytes:
        reason = reason.decode("utf-8", "surrogateescape")
    if type(reason) is not str:
        raise failure(f"Invalid value of reason: expected a string, got {lua_type(reason)}")
    if len(reason.encode("utf-8", "surrogateescape")) > REASON_BYTES_MAX:
        raise failure(f"Invalid value of reason: expected at most {REASON_BYTES_MAX} bytes")
    return reason


def count(tube: TubePort, task_id: int, reason: str) -> int:
    """An attempt ended badly: note it. How many that makes."""
    note = tube.notes.get(task_id)
    attempts = 1 if note is None else note[NOTE_ATTEMPTS] + 1
    tube.notebook.write(tube.id, task_id, attempts, reason, tube.engine.now)
    return attempts


def give_back(tube: TubePort, task_id: int, opts: dict[str, Any] | None, reason: str) -> Row:
    """`TubePort.give_back` where attempts count: the task waits, is ready, or is given up."""
    policy = tube.policy
    assert policy is not None
    attempts = count(tube, task_id, reason)
    if policy.max_attempts and attempts >= policy.max_attempts:
        row = _give_up(tube, task_id, attempts, reason)
    else:
        if policy.retry is not None and (not opts or opts.get("delay") is None):
            opts = _delayed(tube, attempts)
        row = tube.driver.release(task_id, opts, tube.engine.now)
    tube.taken.disown(tube.id, task_id)
    return row


def _delayed(tube: TubePort, attempts: int) -> dict[str, Any]:
    """Chance is asked here, once; what it said is in the row, and so in the log."""
    policy = tube.policy
    assert policy is not None
    assert policy.retry is not None
    return {"delay": policy.retry.delay(attempts, tube.engine.chance()) / SECOND_US}


def expired(tube: TubePort, events: list[Event]) -> list[Event]:
    """What deadlines did, with tasks whose ttr came counted, delayed or given up."""
    policy = tube.policy
    assert policy is not None
    found: list[Event] = []
    for event, row in events:
        if event == "ttr":
            attempts = count(tube, row[0], TTR)
            if policy.max_attempts and attempts >= policy.max_attempts:
                row = _give_up(tube, row[0], attempts, TTR)
            elif policy.retry is not None:
                row = tube.driver.release(row[0], _delayed(tube, attempts), tube.engine.now)
        found.append((event, row))
    return found


def _give_up(tube: TubePort, task_id: int, attempts: int, reason: str) -> Row:
    """Bury the task, or make it a dead letter: its last row, buried or done."""
    engine = tube.engine
    policy = tube.policy
    assert policy is not None
    target = None if policy.dead_letter is None else engine.tubes.get(policy.dead_letter)
    if target is None:
        return tube.driver.bury(task_id, engine.now)
    failures = list(failures_of(tube.notes.get(task_id)))
    row, done = move(tube, target, task_id)
    origin = (tube.name, task_id, attempts)
    target.notebook.write(target.id, row[0], 0, reason, engine.now, origin, failures)
    return done


def move(tube: TubePort, target: TubePort, task_id: int) -> tuple[Row, Row]:
    """A task leaves one tube and enters another (inside the transaction): (new row, last row).

    It takes along payload, headers, priority, sub-queue and what is left of a delay; ttl and ttr
    are those of its new tube. There is always room for it, unless the caller looked: a task must
    not be lost because of where it is to go.
    """
    engine = tube.engine
    old = tube.space.rows[task_id]
    names = [name for name, _ in tube.space.format]
    opts = {name: old[names.index(name)] for name in _CARRIED if name in names}
    if old[1] == DELAYED and "next_event" in names:
        opts["delay"] = max(0, old[names.index("next_event")] - engine.now) / SECOND_US
    row = target.inner.put(tube.shown(old)[-1], opts or None, engine.now)
    kept = headers.kept(tube.notes.get(task_id))
    if kept is not None:
        target.notebook.head(target.id, row[0], kept)
    done = tube.driver.delete(task_id, engine.now)
    tube.notebook.forget(tube.id, task_id)
    engine.arrived.append((target, row))
    return row, done


def tell_moved(engine: EnginePort) -> None:
    """After the commit: who waits in the tubes that tasks moved to, and their callbacks."""
    arrived, engine.arrived = engine.arrived, []
    for tube, row in arrived:
        # What a failed call had moved is no longer there.
        if tube.space.rows.get(row[0]) is row:
            tube.calls["put"] += 1
            tube.tell_put(row)


def tell(tube: TubePort, row: Row, event: str) -> str:
    """After the commit: the event under which a given-up task is told of."""
    tell_moved(tube.engine)
    if row[1] == "-":
        tube.done += 1
        tube.calls["delete"] += 1
        return "delete"
    if row[1] == "!":
        tube.calls["bury"] += 1
        return "bury"
    return event


def delivered(tube: TubePort, shown: Row, delivery: int, token: bool | str) -> Delivery:
    """A task with its token, or with all there is to know where the take asked for that."""
    told = delivery if token is True else _receipt(tube, shown[0], delivery)
    return Delivery((shown[0], shown[1], told, shown[-1]))


def _receipt(tube: TubePort, task_id: int, token: int) -> dict[str, Any]:
    """What a take with `{info = true}` gets beside the task.

    ttr: seconds a worker has, where the task has an end; max_attempts: where the tube gives tasks
    up by itself; retry: the tube itself says how long a failed task waits.
    """
    found: dict[str, Any] = {"token": token}
    note = tube.notes.get(task_id)
    names = [name for name, _ in tube.space.format]
    if "ttr" in names and "next_event" in names:
        ttr = tube.space.rows[task_id][names.index("ttr")] / SECOND_US
        if ttr < INFINITY_S:
            found["ttr"] = ttr
    if tube.policy is not None:
        found["attempts"] = (note[NOTE_ATTEMPTS] if note else 0) + 1
        if tube.policy.max_attempts:
            found["max_attempts"] = tube.policy.max_attempts
        if tube.policy.retry is not None:
            found["retry"] = True
            found["retry_within"] = tube.policy.retry.delay(found["attempts"], 0.0) / SECOND_US
    if note is not None:
        found |= _told(note)
    return found


def info(tube: TubePort, task_id: Any) -> dict[str, Any]:
    """`TUBE:info(id)`: everything known of a task but its payload; times in seconds."""
    row = tube.peek(task_id)
    return about(tube, tube.space.rows.get(row[0], row), row[1])


def about(tube: TubePort, row: Row, status: str) -> dict[str, Any]:
    """The same of one of the tube's rows, whose state clients are told is `status`."""
    known = told(tube, row[0], status)
    return {"id": row[0], "state": status, **facts.facts(tube, row, status), **known}


def told(tube: TubePort, task_id: int, status: str) -> dict[str, Any]:
    """What is known of a task beside its row: attempts, last failure, origin, headers."""
    found: dict[str, Any] = {}
    note = tube.notes.get(task_id)
    if tube.policy is not None:
        found["attempts"] = (note[NOTE_ATTEMPTS] if note else 0) + (status == "t")
        found["max_attempts"] = tube.policy.max_attempts
    if note is not None:
        found |= _told(note)
    if failures := failures_of(note):
        found["failures"] = [{"time": at / SECOND_US, "reason": why} for at, why in failures]
    return found


def _told(note: Row) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if note[NOTE_TIME]:
        found = {"reason": note[NOTE_REASON], "time": note[NOTE_TIME] / SECOND_US}
    kept = headers.of(note)
    if kept is not None:
        found["headers"] = kept
    if note[NOTE_FROM]:
        found |= {"from_tube": note[NOTE_FROM], "from_id": note[NOTE_FROM_ID]}
        found["from_attempts"] = note[NOTE_FROM_ATTEMPTS]
    return found


def redrive(
    tube: TubePort, client: EngineClient, count: Any, to: Any, may_put: Callable[[str], None]
) -> int:
    """Send up to `count` dead letters back to where they came from, or to the tube `to`.

    Ready and buried ones, oldest first, their attempts forgotten; all in one record. How many.
    `may_put(name)` raises where the caller may not put into a tube.
    """
    wanted = REDRIVE_MAX if count is None else count
    if type(wanted) is not int or not 0 <= wanted <= REDRIVE_MAX:
        raise failure(f"Invalid number of tasks to redrive: {count} (expected 0 to {REDRIVE_MAX})")
    targets: dict[str, TubePort] = {}
    dones: list[Row] = []
    for task_id, note in sorted(tube.notes.items()):
        if len(dones) == wanted:
            break
        name = note[NOTE_FROM] if to is None else to
        if tube.space.rows[task_id][1] not in "r!" or not note[NOTE_FROM]:
            continue
        if name not in targets:
            targets[name] = _target(tube, task_id, name)
            may_put(name)
        dones.append(move(tube, targets[name], task_id)[1])
    if dones:
        tube.engine.commit(KIND_OTHER, client.session)
        tell_moved(tube.engine)
        for row in dones:
            tube.done += 1
            tube.calls["delete"] += 1
            tube.tell(row, "delete")
    return len(dones)


def _target(tube: TubePort, task_id: int, name: Any) -> TubePort:
    target = tube.engine.tubes.get(name) if type(name) is str else None
    if target is None:
        raise failure(
            f"Tube {name}, where task {task_id} is to go, does not exist: name another one, "
            "as redrive(count, {to = TUBE})"
        )
    if target is tube:
        raise failure(f"Task {task_id} is in tube {name} already")
    return target


def feeders(tube: TubePort) -> list[str]:
    """Names of the tubes whose dead letters come here."""
    return [
        other.name
        for other in tube.engine.tubes.values()
        if other.policy is not None and other.policy.dead_letter == tube.name
    ]
