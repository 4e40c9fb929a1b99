"""What this node knows of its peers, from whichever end of a link it was heard."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replication.messages import ENDED
from statemachine.promotion import PeerFacts

if TYPE_CHECKING:
    from node.follow import Follow
    from node.links import Feed


@dataclass(slots=True)
class PeerState:
    """One configured peer.

    tried: an attempt to reach it has ended since a promotion was last asked for. problem: why it
    cannot be reached or refuses, as last logged. lag_us: how far behind it this node last was.
    gone: its process said that it ends, not serving, and was not heard of since.
    """

    address: str
    link: Follow | None = None
    tried: bool = False
    problem: str = ""
    lag_us: int = 0
    name: str = ""
    node_id: bytes = b""
    last: PeerFacts | None = None
    heard_us: int = 0
    gone: bool = False
    #: How its last links ended, for the pause before the next attempt.
    again: bool = False
    refused: int = 0
    ended_at_us: int = field(default=0)

    @property
    def connected(self) -> bool:
        return self.link is not None and self.link.upstream is not None

    def ended(self, link: Follow, code: int, now_us: int) -> None:
        """A link is over; what it told is remembered."""
        if link.upstream is not None:
            self.name, self.node_id = link.name, link.upstream.node_id
            self.last = _of_follow(self, link, frozenset(), now_us)
            self.heard_us = now_us - link.applier.pulse.age_us(now_us)
        self.link = None
        self.gone = self.gone or code == ENDED
        # Until it was tried again nobody knows whether it can be reached.
        self.tried = False
        self.again, self.refused = link.again, link.refused
        self.ended_at_us = now_us
        if link.refused:
            self.problem = link.problem
            self.tried = True

    def left(self, feed: Feed, now_us: int) -> None:
        """It said over a link of its own making that its process ends."""
        assert feed.hello is not None
        self.name, self.node_id = feed.hello.node_name, feed.hello.node_id
        self.last = _of_feed(feed, frozenset())
        self.heard_us = now_us
        self.gone = True

    def heard(self) -> None:
        """A process of it lives, whatever the last one said."""
        self.gone = False


def peer_facts(
    peers: Iterable[PeerState], feeds: Iterable[Feed], known: Collection[bytes], now_us: int
) -> tuple[PeerFacts, ...]:
    """One line for each peer: of its link as upstream, else as downstream, else as last heard.

    known: ids of the terms of this node's own lineage.
    """
    facts: list[PeerFacts] = []
    blind: list[PeerState] = []
    seen: set[bytes] = set()
    for peer in peers:
        if peer.link is not None and peer.link.upstream is not None:
            facts.append(_of_follow(peer, peer.link, known, now_us))
            seen.add(peer.link.upstream.node_id)
        else:
            blind.append(peer)
    by_node = {f.hello.node_id: f for f in feeds if f.hello and f.hello.node_id not in seen}
    for peer in blind:
        feed = by_node.pop(peer.node_id, None)
        if feed is None and not peer.node_id and by_node:
            # Not reached yet, but somebody unknown follows: in a cluster of two that is the peer.
            feed = by_node.pop(next(iter(by_node)))
        facts.append(
            _of_feed(feed, known) if feed is not None else _as_last_heard(peer, known, now_us)
        )
    facts.extend(_of_feed(feed, known) for feed in by_node.values())
    return tuple(facts)


def _of_follow(peer: PeerState, link: Follow, known: Collection[bytes], now_us: int) -> PeerFacts:
    upstream, beat = link.upstream, link.beat
    assert upstream is not None
    last = upstream.lineage.last
    number, term_id = (last.number, last.id) if last is not None else (0, b"")
    acked = upstream.commit_lsn
    if beat is not None:
        number, term_id = beat.term_number, beat.term_id
        acked = max(acked, beat.commit_lsn)
    return PeerFacts(
        upstream.node_name,
        not link.ended,
        True,
        link.writable,
        link.peer_lsn,
        number,
        term_id,
        bool(number) and term_id not in known,
        acked,
        link.applier.pulse.age_us(now_us),
    )


def _of_feed(feed: Feed, known: Collection[bytes]) -> PeerFacts:
    hello, beat = feed.hello, feed.beat
    assert hello is not None
    last = hello.lineage.last
    number, term_id = (last.number, last.id) if last is not None else (0, b"")
    writable = hello.state == "RUNNING"
    if beat is not None:
        number, term_id, writable = beat.term_number, beat.term_id, beat.writable
    return PeerFacts(
        hello.node_name,
        True,
        True,
        writable,
        feed.peer_lsn,
        number,
        term_id,
        bool(number) and term_id not in known,
        hello.acked_mark,
    )


def _as_last_heard(peer: PeerState, known: Collection[bytes], now_us: int) -> PeerFacts:
    last = peer.last
    if last is None:
        return PeerFacts(peer.name or peer.address, False, peer.tried)
    return PeerFacts(
        last.name,
        False,
        peer.tried,
        last.writable,
        last.last_lsn,
        last.term_number,
        last.term_id,
        bool(last.term_number) and last.term_id not in known,
        last.acked_mark,
        max(0, now_us - peer.heard_us),
        peer.gone,
    )
