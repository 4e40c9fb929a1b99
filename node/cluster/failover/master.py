"""What this node sees of the seat's master: by links, by dials, and through the arbiter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandemq.model.units import SECOND_US
from tandemq_server.node.cluster.failover.detection import Seen, gone
from tandemq_server.node.cluster.follow import UpstreamLink
from tandemq_server.node.cluster.links import Feed, Link
from tandemq_server.replication.commit import PAIR
from tandemq_server.replication.messages import STOPPING

if TYPE_CHECKING:
    from tandemq_server.node.cluster.failover.keeper import SeatKeeper
    from tandemq_server.node.cluster.peers import PeerState
    from tandemq_server.statemachine.seat import SeatReading

#: Ticks come several times a second: a longer gap is a pause of this process.
PAUSE_US = SECOND_US


class Watch:
    """alive: whose key lives, as the arbiter said to a question asked at `alive_us`.

    gone_back: the register as it is, where it is older than the leadership here.
    """

    def __init__(self, keeper: SeatKeeper) -> None:
        self.keeper = keeper
        self.peering = keeper.peering
        self.alive: frozenset[str] = frozenset()
        self.alive_us: int | None = None
        self.gone_back: SeatReading | None = None
        #: Names of peers whose process said, while it led, that it ends; and the last pause.
        self._ending: dict[str, int] = {}
        self._awake_us: int | None = None

    def stood_still(self, now_us: int) -> None:
        self._awake_us = now_us
        self.alive_us = None

    def ended(self, link: Link) -> None:
        """A link is over. A master whose process ends in good order says so."""
        if isinstance(link, UpstreamLink) and link.refused == STOPPING:
            self._ending[link.name] = self.peering.mono()

    def own_term(self) -> None:
        self._ending.clear()

    def connected(self, name: str) -> None:
        self._ending.pop(name, None)

    def why_gone(self, name: str, now_us: int) -> str:
        """Why the master counts as gone; empty while it does not."""
        failover = self.keeper.failover
        silence_us = int(failover.silence * SECOND_US)
        if self._awake_us is not None and now_us - self._awake_us < silence_us:
            return ""
        careful = self.peering.settings.replication.ack != PAIR
        return gone(self.seen(name, now_us), silence_us, careful)

    def seen(self, name: str, now_us: int) -> Seen:
        heard_us = self._heard_us(name, now_us)
        peer = self._peer(name)
        refused = now_us - peer.refused_us if peer is not None and peer.refused_us else None
        links = self._links(name)
        fresh = self.alive_us is not None and (heard_us is None or self.alive_us > heard_us)
        key_gone = fresh and name not in self.alive
        asked = f"{name} ends" if name in self._ending else ""
        silent = now_us - heard_us if heard_us is not None else None
        return Seen(bool(links), silent, refused, key_gone, asked)

    def since_us(self, name: str, now_us: int) -> int:
        heard_us = self._heard_us(name, now_us)
        return now_us if heard_us is None else heard_us

    def _links(self, name: str) -> list[Link]:
        return [one for one in self.peering.links() if one.name == name and not one.ended]

    def _heard_us(self, name: str, now_us: int) -> int | None:
        """When the peer was last heard over any link of this process."""
        moments = [now_us - _age(link, now_us) for link in self._links(name)]
        peer = self._peer(name)
        if peer is not None and peer.heard_us:
            moments.append(peer.heard_us)
        return max(moments, default=None)

    def _peer(self, name: str) -> PeerState | None:
        peers = list(self.peering.peers.values())
        found = next((peer for peer in peers if peer.name == name), None)
        if found is None and len(peers) == 1 and not peers[0].name:
            # Never reached by this process; of two nodes it is the other one.
            return peers[0]
        return found

    def id_of(self, name: str) -> bytes:
        """The id of the node of that name that is fed here; empty if nobody is."""
        for feed in self.peering.feeds:
            if feed.hello is not None and feed.name == name and not feed.ended:
                return feed.hello.node_id
        return b""

    def name_of(self, node_id: bytes) -> str | None:
        for feed in self.peering.feeds:
            if feed.hello is not None and feed.hello.node_id == node_id and not feed.ended:
                return feed.name
        return None


def _age(link: Link, now_us: int) -> int:
    if isinstance(link, Feed):
        return link.pulse.age_us(now_us)
    return link.applier.pulse.age_us(now_us)  # type: ignore[attr-defined,no-any-return]
