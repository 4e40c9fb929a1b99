"""What must hold of a history, whatever was done to the cluster meanwhile.

Each checker returns what it found wrong, one line each. `judge` runs them all. An acknowledgement
a forced promotion may undo (`History.losses`) is not held against the queue as long as its records
are in a rescue file.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import pairwise

from tests.chaos.chaos_history import Delivery, History

SHOWN_MAX = 10


def _by_value(history: History) -> dict[int, list[Delivery]]:
    found: dict[int, list[Delivery]] = defaultdict(list)
    for one in history.deliveries:
        found[one.value].append(one)
    return found


def total_queue(history: History) -> Iterator[str]:
    """Nothing acknowledged is lost, nothing comes from nowhere, nothing refused was done."""
    present = {value for _, _, value in history.left}
    by_value = _by_value(history)
    attempted = {put.value: put for put in history.puts}
    for put in history.puts:
        if put.outcome != "ok" or put.value in present:
            continue
        if any(one.outcome in ("ok", "unknown") for one in by_value[put.value]):
            continue
        if history.may_be_undone(put.node, put.done) and put.value in history.rescued:
            continue
        seen = f"delivered {len(by_value[put.value])} times" if by_value[put.value] else "unseen"
        yield f"lost: {put.value}, acknowledged by {put.node} at {put.done}, {seen}"
    for value in sorted(present | set(by_value)):
        if value not in attempted:
            yield f"from nowhere: {value}"
        elif attempted[value].outcome == "refused":
            yield f"refused, yet there: {value}"


def stored_once(history: History) -> Iterator[str]:
    """A put that was sent once is one task, and one task is one put's."""
    ids: dict[int, set[tuple[str, int]]] = defaultdict(set)
    values: dict[tuple[str, int], set[int]] = defaultdict(set)
    keyed = {put.value for put in history.puts if put.key is not None}
    rows = [(one.tube, one.task, one.value) for one in history.deliveries]
    rows += history.left
    rows += [(put.tube, put.task, put.value) for put in history.puts if put.task is not None]
    for tube, task, value in rows:
        ids[value].add((tube, task))
        values[tube, task].add(value)
    for value, found in ids.items():
        # A keyed put sent again after a cut is stored again: what was cut took its key along.
        if len(found) > 1 and not (history.losses and value in keyed):
            yield f"stored twice: {value} is {sorted(found)}"
    for (tube, task), found_values in values.items():
        # After a forced promotion the winning log gives ids anew that the cut one had used.
        if len(found_values) > 1 and not history.losses:
            yield f"one id, several tasks: {tube} {task} is {sorted(found_values)}"
    for value, times in Counter(value for _, _, value in history.left).items():
        if times > 1:
            yield f"stored twice: {value} was drained more than once"


def ack_is_final(history: History) -> Iterator[str]:
    """After an ack that succeeded a task is never seen again, and no stale ack succeeds."""
    present = {value for _, _, value in history.left}
    for value, deliveries in _by_value(history).items():
        for one in deliveries:
            if one.outcome != "ok" or history.may_be_undone(one.ack_node, one.done):
                continue
            if value in present:
                yield f"back after its ack: {value}, acked by {one.worker} at {one.done}"
            for other in deliveries:
                if other is one:
                    continue
                if one.done is not None and other.asked > one.done:
                    yield f"delivered after its ack: {value}, by {one.worker} then {other.worker}"
                if _overtaken(history, one, other):
                    yield (
                        f"a stale ack succeeded: {value}, token {one.token} of {one.worker} after "
                        f"token {other.token} of {other.worker}"
                    )


def _overtaken(history: History, one: Delivery, other: Delivery) -> bool:
    """Whether `other` had the task already when `one` asked for its ack."""
    if history.may_be_undone(other.node, other.got) or one.sent is None:
        return False
    tried = one.tried or one.sent
    later = one.token is None or other.token is None or other.token > one.token
    return later and other.got < tried and other.asked > one.got


def _overlaps(
    deliveries: Iterable[Delivery], key: Callable[[Delivery], Hashable | None]
) -> Iterator[tuple[Hashable, Delivery, Delivery]]:
    """Pairs of deliveries of one key that two hands certainly held at one moment."""
    groups: dict[Hashable, list[Delivery]] = defaultdict(list)
    for one in deliveries:
        found = key(one)
        if found is not None:
            groups[found].append(one)
    for name, group in groups.items():
        group.sort(key=lambda one: one.got)
        for number, one in enumerate(group):
            for other in group[number + 1 :]:
                if other.got >= one.held_until():
                    break
                if max(one.got, other.got) < min(one.held_until(), other.held_until()):
                    yield name, one, other


def lease_exclusive(history: History, group_of: Callable[[Delivery], Hashable | None]) -> list[str]:
    """No task in two hands at a time, and no two tasks of one sub-queue.

    group_of: the sub-queue of a delivery, None for tubes without.
    """
    kept = [one for one in history.deliveries if not history.may_be_undone(one.node, one.got)]
    found = []
    for what, key in (("task", lambda one: one.value), ("sub-queue", group_of)):
        for name, one, other in _overlaps(kept, key):
            found.append(
                f"held twice: {what} {name} by {one.worker} ({one.got:.3f} to "
                f"{one.held_until():.3f}) and {other.worker} (from {other.got:.3f})"
            )
    return found


def leases_kept(history: History) -> Iterator[str]:
    """Nobody is told that a task is not his as long as nothing ended his lease."""
    for one in history.deliveries:
        undone = history.may_be_undone(one.node, one.got)
        if one.outcome == "refused" and one.ended is None and not undone:
            yield f"lease lost without a cause: {one.value}, {one.worker} at {one.done}"


def sessions_kept(history: History, ttr: float) -> Iterator[str]:
    """A session named again within its ttr is known."""
    for one in history.forgotten:
        # A session that came with a record that was cut is not known to the winning log.
        undone = any(loss.since <= one.asked for loss in history.losses)
        if one.asked - one.lost < ttr and not undone:
            yield f"session of {one.worker} forgotten after {one.asked - one.lost:.1f} s"


def logs_agree(one: list[tuple], other: list[tuple]) -> Iterator[str]:
    """Two logs, as (lsn, term, kind, ops): equal where both have a record, without gaps."""
    for name, log in (("first", one), ("second", other)):
        for before, after in pairwise(log):
            if after[0] != before[0] + 1:
                yield f"gap in the {name} log between {before[0]} and {after[0]}"
    theirs = {row[0]: row for row in other}
    if one and other and one[-1][0] != other[-1][0]:
        yield f"logs end at {one[-1][0]} and {other[-1][0]}"
    for row in one:
        if row[0] in theirs and theirs[row[0]] != row:
            yield f"record {row[0]} differs: {row!r:.200} and {theirs[row[0]]!r:.200}"


def spaces_agree(one: dict[str, list], other: dict[str, list]) -> Iterator[str]:
    """The rows of every space, as both nodes tell them by SELECT."""
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name), other.get(name)
        if mine is None or theirs is None:
            yield f"space {name} is on one node only"
        elif mine != theirs:
            rows = [row for row in mine if row not in theirs][:3]
            rows += [row for row in theirs if row not in mine][:3]
            yield f"space {name} differs: {len(mine)} and {len(theirs)} rows, such as {rows}"


def one_term_one_node(owners: Iterable[tuple[int, str]]) -> Iterator[str]:
    """(term number, node) of every term any log ever had that counted: one node each."""
    seen: dict[int, set[str]] = defaultdict(set)
    for number, node in owners:
        seen[number].add(node)
    for number, nodes in sorted(seen.items()):
        if len(nodes) > 1:
            yield f"term {number} is that of {sorted(nodes)}"


def judge(
    history: History, ttr: float, group_of: Callable[[Delivery], Hashable | None]
) -> list[str]:
    """Everything that is wrong with a history; empty when nothing is."""
    return [
        *total_queue(history),
        *stored_once(history),
        *ack_is_final(history),
        *lease_exclusive(history, group_of),
        *leases_kept(history),
        *sessions_kept(history, ttr),
    ]


def expect_nothing(found: list[str]) -> None:
    """Raises AssertionError with the first findings."""
    more = f"\n... and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    assert not found, "\n".join(found[:SHOWN_MAX]) + more
