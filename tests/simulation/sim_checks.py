"""The judges: what must hold of every history, and of the two nodes once they are healed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tandemq.model.record import HEADER_SIZE, decode_body
from tests.simulation.sim_clients import History, Op
from tests.simulation.sim_node import SimNode
from tests.simulation.sim_operator import JUNK
from tests.simulation.sim_plan import Plan
from tests.simulation.sim_rescue import NotReadable, Rescued, read_all
from tests.simulation.sim_tubes import DEAD, PASSING

#: What ends a task for good.
ENDED = frozenset({"ack", "delete"})
#: What ends all tasks of a tube.
EMPTIES = frozenset({"truncate", "drop"})


class Violation(Exception):
    """A promise was broken. str() says which and how it shows."""


def check_history(
    history: History, machines: dict[str, SimNode], plan: Plan, forced: bool
) -> Rescued:
    """C1 total queue, C3 finality of acks, C4 no stale finish, C8 rescue accounting."""
    disks = {name: [*node.old_disks, node.disk] for name, node in machines.items()}
    try:
        rescued = read_all(disks, (*plan.tubes, PASSING))
    except NotReadable as error:
        raise Violation(f"C8: {error}") from error
    _mark_untold(history, machines, rescued)
    by_number: dict[int, list[Op]] = defaultdict(list)
    for op in history.ops:
        if op.number is not None:
            by_number[op.number].append(op)
    kept = plan.never_alone and not forced
    moved = "y_bulk" in plan.dimensions
    for number, ops in sorted(by_number.items()):
        if not any(op.kind == "put" for op in ops):
            raise Violation(f"C1: {number} was never put and came out: {_story(ops)}")
        emptied = [op for op in _truncations(history.ops) if _may_meet(op, ops)]
        if kept:
            _check_gone(number, ops, emptied)
        if not (emptied or _deleted_by_filter(ops, history.ops)):
            _check_lost(number, ops, rescued, kept, history.ops, plan.tubes if moved else (DEAD,))
        # With its tasks a tube forgets their keys: a put that is repeated then makes another task.
        if not (emptied and any(op.outcome.unknown and op.key for op in ops)):
            _check_twice(number, ops, rescued, moved)
    return rescued


def _mark_untold(history: History, machines: dict[str, SimNode], rescued: Rescued) -> None:
    """Only what was answered from records that are in no log, and that no file shows one by one."""
    lineage = next(iter(machines.values())).engine.store.lineage
    for op in history.ops:
        told = machines[op.node].service.answers.get((op.client, op.sync)) if op.node else None
        if told is not None and not told.stands(lineage):
            ranges = rescued.untold.get(op.node, ())
            op.untold = any(told.first <= last and told.last >= first for first, last in ranges)


def _deleted_by_filter(ops: list[Op], every: list[Op]) -> bool:
    """It was put to be deleted, and a call that deletes its kind may have met it."""
    put = min((op.began for op in ops if op.subqueue == JUNK and op.kind == "put"), default=None)
    return put is not None and any(
        op.kind == "bulk delete"
        and op.outcome.error is None
        and (op.outcome.unknown or (op.ended or 0) > put)
        for op in every
    )


def _truncations(every: list[Op]) -> list[Op]:
    return [op for op in every if op.kind in EMPTIES and op.outcome.error is None]


def _may_meet(emptied: Op, ops: list[Op]) -> bool:
    """The tube may have been emptied while the task was in it."""
    return any(
        op.kind == "put"
        and op.tube == emptied.tube
        and (emptied.outcome.unknown or (emptied.ended or 0) > op.began)
        for op in ops
    )


def _check_gone(number: int, ops: list[Op], emptied: list[Op]) -> None:
    """What was there when its tube was emptied comes out of it no more."""
    puts = [op for op in ops if op.kind == "put"]
    for call in emptied:
        if call.ended is None or call.outcome.ok is None:
            continue
        if any(put.ended is None or put.ended > call.began for put in puts):
            continue  # perhaps put after it
        for take in ops:
            if take.kind == "take" and take.tube == call.tube and take.began > call.ended:
                raise Violation(f"C3: {number} came out of an emptied tube: {_story(ops)}")


def _check_lost(
    number: int,
    ops: list[Op],
    rescued: Rescued,
    kept: bool,
    every: list[Op],
    elsewhere: tuple[str, ...],
) -> None:
    """What was acknowledged was finished by somebody, could expire, or is shown in a file.

    kept: in pair mode that never goes alone, and nobody forced: nothing acknowledged is cut.
    elsewhere: tubes that it may have been moved to, with its payload, which nothing else has.
    """
    finished = any(op.kind in ENDED and op.outcome.error is None for op in ops)
    for op in ops:
        if op.kind != "put" or op.outcome.ok is None:
            continue
        shown = rescued.shows_put(op.tube, op.task_id, number)
        # What is shown may be an attempt before this one, of which nobody heard.
        other = any(one.kind == "put" and one.outcome.unknown for one in ops)
        if kept and shown and not (other and finished):
            raise Violation(f"P1: {number} was acknowledged in pair mode and cut: {_story(ops)}")
        told = shown or any((tube, number) in rescued.by_number for tube in elsewhere)
        if not (finished or told or op.expires or _finished_as_another(op, every, rescued)):
            raise Violation(f"C1: {number} was acknowledged and never finished: {_story(ops)}")
    came_out = any(op.kind == "take" for op in ops)
    if came_out and all(op.outcome.error is not None for op in ops if op.kind == "put"):
        raise Violation(f"C1: {number} was refused and came out: {_story(ops)}")


def _finished_as_another(lost: Op, every: list[Op], rescued: Rescued) -> bool:
    """Two logs that parted by force gave one id to two tasks, and one worker had both in hand.

    It finished the one that was cut, which a rescue file shows, at the node of the other log; by
    an id alone, without the token of a delivery, nobody can tell which one it means. Nor can who
    deletes by an id.
    """
    holders = {op.session for op in every if op.kind == "take" and op.number == lost.number}
    return any(
        op.kind in ENDED
        and op.outcome.error is None
        and (op.kind == "delete" or (op.token is None and op.session in holders))
        and (op.tube, op.task_id) == (lost.tube, lost.task_id)
        and op.number not in (None, lost.number)
        and rescued.shows_put(op.tube, op.task_id, op.number)
        for op in every
    )


def _check_twice(number: int, ops: list[Op], rescued: Rescued, moved: bool) -> None:
    """moved: it may have been another task of another tube when its end was cut."""
    known = {(op.tube, op.task_id) for op in ops if op.task_id is not None}
    again = moved and any(rescued.shows_again(tube, task_id) for tube, task_id in known)
    acks = [
        op
        for op in ops
        if op.kind in ENDED
        and op.outcome.ok is not None
        and not (again or rescued.shows_again(op.tube, op.task_id))
        # Known: of a whole state that is saved, nobody can tell what was finished in it.
        and not op.untold
    ]
    puts = [op for op in ops if op.kind == "put" and op.outcome.error is None]
    unkeyed = sum(op.outcome.unknown and op.key is None for op in puts)
    # A put that was cut is repeated, if its first answer was lost, where its key is not known.
    retried = sum(op.outcome.unknown and op.key is not None for op in puts) if rescued.files else 0
    if len(acks) > 1 + unkeyed + retried:
        raise Violation(f"C3: {number} was finished {len(acks)} times: {_story(ops)}")
    takes = [op for op in ops if op.kind == "take"]
    for ack in acks:
        assert ack.ended is not None
        mine = [t.ended or 0 for t in takes if t.session == ack.session]
        own = max((ended for ended in mine if ended <= ack.began), default=-1)
        for take in takes:
            assert take.ended is not None
            same = (take.tube, take.task_id) == (ack.tube, ack.task_id)
            if not same or take.untold or rescued.shows_take(take.tube, take.task_id):
                continue
            if take.began > ack.ended:
                raise Violation(f"C3: {number} came out after its ack: {_story(ops)}")
            stale = take.session != ack.session and take.ended < ack.began and ack.kind == "ack"
            if stale and own < take.began:
                raise Violation(f"C4: {number} was finished by who had lost it: {_story(ops)}")


def _story(ops: list[Op]) -> str:
    """Who did what, without the puts that were refused."""
    return "; ".join(
        f"{op.began / 1e6:.4f}-{(op.ended or 0) / 1e6:.4f} {op.session or op.client} {op.kind} "
        f"{op.tube} {op.task_id} at {op.node}: "
        + ("unknown" if op.outcome.unknown else "ok" if op.outcome.ok is not None else "refused")
        for op in ops
        if op.kind != "put" or op.outcome.error is None
    )


def check_end(machines: dict[str, SimNode]) -> None:
    """C6 one history, C7 equal nodes and logs, spaces in order."""
    nodes = list(machines.values())
    for node in nodes:
        if node.peering.replica.alarms:
            raise Violation(f"C6: {node.name} raised an alarm: the logs differ")
        if node.peering.replica.unreadable > node.read_faults:
            raise Violation(f"C6: {node.name} was sent a snapshot that cannot be read")
        node.engine.store.check()
    first = nodes[0]
    for second in nodes[1:]:
        _check_same(first, second)


def _check_same(first: SimNode, second: SimNode) -> None:
    if first.engine.store.lineage != second.engine.store.lineage:
        raise Violation("C6: the lineages differ")
    for space_id, space in first.engine.store.spaces.items():
        other = second.engine.store.spaces.get(space_id)
        if space.temporary or other is None or other.temporary:
            if other is None or other.temporary != space.temporary:
                raise Violation(f"C7: space {space.name} is not the same on both nodes")
            continue
        if _plain(space.rows) != _plain(other.rows):
            raise Violation(f"C7: space {space.name} differs: {_difference(space, other)}")
    _same_logs(first, second)


def _plain(rows: dict[Any, Any]) -> dict[Any, Any]:
    return {key: tuple(row) for key, row in rows.items()}


def _difference(space: Any, other: Any) -> str:
    keys = [k for k in {*space.rows, *other.rows} if space.rows.get(k) != other.rows.get(k)]
    return "; ".join(f"{space.rows.get(k)} / {other.rows.get(k)}" for k in keys[:3])


def _same_logs(first: SimNode, second: SimNode) -> None:
    start = max(node.storage.log.first_lsn for node in (first, second))  # type: ignore[union-attr]
    records = []
    for node in (first, second):
        assert node.storage.log is not None
        found: dict[int, Any] = {}
        for header, frame in node.storage.log.read_from(start):
            body = memoryview(frame)[HEADER_SIZE:]
            for number, record in enumerate(decode_body(body, header.count)):
                found[header.first_lsn + number] = (header.term, record)
        records.append({lsn: record for lsn, record in found.items() if lsn >= start})
    if records[0] != records[1]:
        lsn = min(k for k in {*records[0], *records[1]} if records[0].get(k) != records[1].get(k))
        raise Violation(f"C7: the logs differ from LSN {lsn} on")
