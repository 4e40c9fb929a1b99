"""What an operator must hear of: links that cannot go on, logs that cannot be read, conflicts.

One line for each, from the moment it is met until it is over; logged as an error once. What
passes by itself (a peer that restarts, a link that is silent) is no trouble.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tandemq_server.node.cluster.failover import report
from tandemq_server.node.cluster.follow import UpstreamLink
from tandemq_server.node.cluster.links import Feed, Link
from tandemq_server.node.cluster.promise import promise_of
from tandemq_server.replication.commit import UNKNOWN
from tandemq_server.replication.messages import (
    BROKEN_LINEAGE,
    CONFLICT,
    DIVERGED,
    GARBAGE,
    LOST_ACKNOWLEDGED,
    NEWER_PROTOCOL,
    OTHER_WAL_MODE,
    SELF,
    UNKNOWN_NODE,
    WRONG_CLUSTER,
)
from tandemq_server.statemachine.roles import Role

if TYPE_CHECKING:
    from tandemq_server.node.cluster.peering import Peering

#: Refusals that stay until somebody does something.
REFUSALS = frozenset(
    (
        WRONG_CLUSTER,
        SELF,
        NEWER_PROTOCOL,
        UNKNOWN_NODE,
        CONFLICT,
        LOST_ACKNOWLEDGED,
        BROKEN_LINEAGE,
        OTHER_WAL_MODE,
    )
)
#: What came over a link was not what it should be: over once records flow past that place.
SPOILT = frozenset((GARBAGE, DIVERGED))
#: A downstream that stays away so long is somebody else's trouble.
FORGOTTEN_US = 120_000_000


@dataclass(frozen=True, slots=True)
class _Trouble:
    text: str
    code: int
    #: How far the downstream's log was.
    lsn: int
    met_us: int


class Troubles:
    """alarm(text): one line in the log, as an error."""

    def __init__(self, peering: Peering) -> None:
        self.peering = peering
        self.alarm: Callable[[str], None] = peering.say
        self._links: dict[str, _Trouble] = {}
        self._told: set[str] = set()

    def of(self, end: str) -> bool:
        """Whether this end of a link is in trouble."""
        return end in self._links

    def ended(self, link: Link, code: int) -> bool:
        """A link is over; True when that is trouble, which is then logged here."""
        if code not in REFUSALS and code not in SPOILT:
            return False
        if isinstance(link, Feed) and link.hello is None:
            # Somebody who is no node at all.
            return False
        text = f"{end_of(link)}: {link.problem}"
        self._links[end_of(link)] = _Trouble(text, code, _position(link), self.peering.mono())
        self._tell(text)
        return True

    def tick(self, now_us: int) -> None:
        """Time passed: what is over is forgotten, what is new is told."""
        if self._links:
            alive = {end_of(link): link for link in self.peering.links() if _accepted(link)}
            for end, trouble in list(self._links.items()):
                link = alive.get(end)
                if link is not None and _over(trouble, link):
                    del self._links[end]
                    self.peering.say(f"{end}: in order again")
                elif (
                    link is None
                    and end.startswith(_DOWN)
                    and now_us - trouble.met_us > FORGOTTEN_US
                ):
                    del self._links[end]
        lines = self.lines()
        for line in lines:
            self._tell(line)
        self._told.intersection_update(lines)

    def lines(self) -> tuple[str, ...]:
        """What an operator should know now; empty when all is in order."""
        found = [trouble.text for trouble in self._links.values()]
        peering = self.peering
        if peering.source.damage:
            found.append(peering.source.damage)
        if peering.role.leading and promise_of(peering) == UNKNOWN:
            silent = [f.name for f in peering.feeds if f.relay and f.hello and not f.hello.wal_mode]
            found.append(
                f"what the pair promises is unknown: {', '.join(silent)} does not tell its wal.mode"
            )
        if missing := peering.storage.missing_lsn:
            found.append(
                f"records up to LSN {missing} can no longer be read here (see *.damaged): they "
                f"are fetched from a peer, the log ends at LSN {peering.core.engine.lsn}"
            )
        snapshots = peering.source.snapshots
        if snapshots is not None and snapshots.problem:
            found.append(snapshots.problem)
        if peering.seat is not None:
            found += report.troubles(peering.seat)
        if waiting := _waits_for_operator(peering):
            found.append(waiting)
        return tuple(found)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.alarm(text)


_DOWN, _UP = "downstream ", "upstream "


def _waits_for_operator(peering: Peering) -> str:
    """Why a node that should serve does not, where that does not pass by itself."""
    fiber = peering.role.fiber
    notes = fiber.notes
    if peering.role.role is not Role.WAITING:
        return ""
    if notes.hold.startswith("conflict"):
        return notes.hold
    if notes.missing and not notes.request.read_only and not (notes.hold and _is_led(peering)):
        return f"not made writable: {notes.missing}"
    return ""


def _is_led(peering: Peering) -> bool:
    """A node that serves feeds this one: a replica in order, whatever its configuration wants."""
    links = (peer.link for peer in peering.peers.values())
    return any(link.writable and link.applier.feeding for link in links if link is not None)


def end_of(link: Link) -> str:
    """What to call the other end of a link."""
    return f"{_DOWN if isinstance(link, Feed) else _UP}{link.name}"


def _position(link: Link) -> int:
    """How far the downstream of this link is."""
    if isinstance(link, UpstreamLink):
        return link.applier.log.last_lsn
    assert isinstance(link, Feed)
    return link.relay.acked_lsn if link.relay is not None else link.peer_lsn


def _accepted(link: Link) -> bool:
    if link.ended:
        return False
    if isinstance(link, UpstreamLink):
        return link.upstream is not None
    return isinstance(link, Feed) and link.hello is not None


def _over(trouble: _Trouble, link: Link) -> bool:
    """Whether a link that lives shows that what was wrong is right again."""
    if trouble.code in REFUSALS:
        return True
    if isinstance(link, UpstreamLink):
        lag = link.applier.lag_records
        return link.applier.feeding and (link.applier.log.last_lsn > trouble.lsn or not lag)
    assert isinstance(link, Feed)
    relay = link.relay
    return relay is not None and (relay.acked_lsn > trouble.lsn or not relay.lag_records)
