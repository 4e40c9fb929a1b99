"""The whole node in one answer: is somebody serving, is nothing about to be lost, is work done.

Here: what is worth a person's attention, worst first, and what to do about it. Must not be here:
where the numbers come from, HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tandemq_server.node.cluster.sharing import unkept
from tandemq_server.node.observe.answers import ClusterStatus, NodeStatus, Peer
from tandemq_server.node.observe.inventory_answers import TubeStatus
from tandemq_server.node.observe.words import why_read_only

Level = Literal["green", "amber", "red"]
#: Beyond these something is worth an amber mark. Seconds.
LAG_S, IDLE_S = 10.0, 60.0
#: Tubes shown: those with the most waiting.
TUBES_SHOWN = 20
#: memory_state of metrics.
_HIGH, _FULL = 1, 2


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing to know: what is so, and what to do about it. tube: where, None for the node."""

    level: Level
    sentence: str
    todo: str
    tube: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """Bytes in use by the process, and its two bounds; 0: no bound."""

    used: int
    high: int
    max: int


@dataclass(frozen=True, slots=True)
class Overview:
    """level: of the worst concern; sentence, todo: of that one, or that all is well.

    serving: the nodes that are writable. successor: who would serve if the node that does died.
    Rates per second, of all tubes, None before they are known. dead_letters: tasks in tubes that
    take them. backlog: tubes with the most waiting tasks first.
    """

    node: str
    level: Level
    sentence: str
    todo: str
    concerns: tuple[Concern, ...]
    serving: tuple[str, ...]
    successor: str
    ready: int
    oldest_ready_seconds: float | None
    put_rate: float | None
    take_rate: float | None
    ack_rate: float | None
    failed_per_minute: float | None
    dead_letters: int
    memory: MemoryAnswer
    backlog: tuple[TubeStatus, ...]


def overview(
    status: NodeStatus,
    cluster: ClusterStatus,
    tubes: Sequence[TubeStatus],
    memory: MemoryAnswer,
    memory_state: int,
) -> Overview:
    """Put together; `tubes` are all, or the first so many."""
    order = {"red": 0, "amber": 1, "green": 2}
    found = [*_serving(status, cluster), *_safety(status), *_room(memory, memory_state)]
    if status.writable:
        found += _work(tubes)
    found.sort(key=lambda one: order[one.level])
    worst = found[0] if found else Concern("green", _all_well(status, cluster), "")
    ages = [tube.oldest_ready_seconds for tube in tubes if tube.oldest_ready_seconds is not None]
    waiting = sorted(
        tubes, key=lambda tube: (-(tube.ready or 0), -(tube.oldest_ready_seconds or 0))
    )
    return Overview(
        status.name,
        worst.level,
        worst.sentence,
        worst.todo,
        tuple(found),
        cluster.writable,
        _successor(status, cluster),
        sum(tube.ready or 0 for tube in tubes),
        max(ages, default=None),
        _sum(tube.rates.put for tube in tubes if tube.rates),
        _sum(tube.rates.take for tube in tubes if tube.rates),
        _sum(tube.rates.ack for tube in tubes if tube.rates),
        _sum(t.failed_per_minute for t in tubes if t.failed_per_minute is not None),
        sum(tube.total for tube in tubes if tube.dead_letters_of),
        memory,
        tuple(waiting[:TUBES_SHOWN]),
    )


def _sum(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) if found else None


def _all_well(status: NodeStatus, cluster: ClusterStatus) -> str:
    if status.state == "RUNNING":
        followers = [_name(peer) for peer in status.peers if peer.role == "downstream"]
        behind = f", {' and '.join(followers)} in step" if followers else ""
        return f"{status.name} serves{behind}"
    return f"{' and '.join(cluster.writable)} serves, {status.name} follows"


def _name(peer: Peer) -> str:
    return peer.name or peer.address


# -- is somebody serving, is nothing about to be lost ---------------------------------------------


def _serving(status: NodeStatus, cluster: ClusterStatus) -> Iterator[Concern]:
    if not status.live:
        yield Concern(
            "red",
            f"{status.name} has stopped: {status.problem or 'its log failed'}",
            "promote the other node, then look at this one's disk",
        )
    if cluster.conflict:
        names = " and ".join(cluster.writable)
        yield Concern(
            "red", f"{names} both claim to serve", "make the one of the lower term read-only"
        )
    if cluster.writable:
        return
    if status.state in ("STARTUP", "ENDING"):
        yield Concern("amber", f"no node serves yet: {status.summary}", "wait a moment")
        return
    gone = [_name(peer) for peer in status.peers if not peer.connected]
    why = f": {' and '.join(gone)} cannot be reached" if gone else ""
    reason = why_read_only(status.ro_reason)
    if not gone and reason:
        why = f": {reason}"
    again = f"start {gone[0]} again, or promote" if gone else "promote"
    yield Concern("red", f"no node serves{why}", f"{again} {status.name}")


def _safety(status: NodeStatus) -> Iterator[Concern]:
    if status.live and status.problem:
        yield Concern("amber", status.problem, "see the logs of both nodes")
    if status.solo and status.ack == "pair":
        yield Concern(
            "amber",
            f"{status.name} goes on alone: what it acknowledges is on one disk",
            "bring the replica back, the mark goes by itself",
        )
    for peer in status.peers if status.writable else ():
        if not peer.connected:
            yield Concern(
                "amber",
                f"{_name(peer)} cannot be reached: nobody could take over",
                f"start it, or fix the network to {peer.address}",
            )
        elif peer.lag is not None and peer.lag.seconds > LAG_S:
            yield Concern(
                "amber",
                f"{_name(peer)} is {peer.lag.records} records, {peer.lag.seconds:.0f} s behind",
                "its disk or the network is too slow, or it catches up after an absence",
            )
    if status.rescue_tasks:
        yield Concern(
            "amber",
            f"{status.rescue_tasks} tasks that a rewind cut off wait in rescue files",
            "`tandemq rescue list DIR` on that machine shows them",
        )
    if status.peers and status.writable:
        loose = unkept(status.session_ttr, status.in_replicaset)
        if loose:
            yield Concern(
                "amber", loose, "set queue.ttr and queue.in_replicaset, or leave both out"
            )


def _room(memory: MemoryAnswer, state: int) -> Iterator[Concern]:
    if state == _FULL:
        yield Concern(
            "red",
            "memory is full: puts are refused",
            "work off or delete tasks, or raise memory.max",
        )
    elif state == _HIGH:
        share = f", {memory.used * 100 // memory.max} % of memory.max" if memory.max else ""
        yield Concern(
            "amber", f"memory is above memory.high{share}", "at memory.max puts will be refused"
        )


# -- is work being done ---------------------------------------------------------------------------


def _work(tubes: Sequence[TubeStatus]) -> Iterator[Concern]:
    for tube in tubes:
        if tube.problem:
            yield Concern("amber", f"{tube.name}: {tube.problem}", "see the log", tube.name)
        waited = tube.oldest_ready_seconds or 0.0
        idle = tube.rates is not None and not tube.rates.take and not tube.waiting_consumers
        if tube.dead_letters_of:
            continue  # what waits there waits for a person
        if tube.ready and tube.paused_takes:
            yield Concern(
                "amber", f"{tube.ready} tasks of {tube.name} wait: takes are paused",
                "resume takes", tube.name,
            )  # fmt: skip
        elif tube.ready and idle and waited > IDLE_S:
            yield Concern(
                "amber",
                f"nobody takes from {tube.name}: {tube.ready} tasks wait, "
                f"the oldest {waited:.0f} s",
                "start workers, or look why they do not take",
                tube.name,
            )
        failed = tube.failed_per_minute
        acked = tube.rates.ack * 60 if tube.rates else 0.0
        if failed and failed >= 1 and failed > acked:
            yield Concern(
                "amber",
                f"more tasks of {tube.name} fail than succeed: {failed:.0f} a minute",
                "look at the reasons of those that failed",
                tube.name,
            )


def _successor(status: NodeStatus, cluster: ClusterStatus) -> str:
    """Who would serve if the node that serves died, in words."""
    if status.failover is not None and status.failover.outlook:
        return status.failover.outlook
    if not status.peers:
        return "nobody: this node has no peers"
    if not cluster.writable:
        return "nobody serves now"
    if status.writable:
        able = [_name(peer) for peer in status.peers if peer.connected and not peer.problem]
    else:
        able = [status.name] if status.following else []
    return f"{able[0]}, once somebody promotes it" if able else "nobody: no replica is in step"
