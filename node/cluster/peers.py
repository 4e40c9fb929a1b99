"""What this node knows of its peers, from whichever end of a link it was heard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tandemq_server.replication.messages import ENDED, Heartbeat, Welcome
from tandemq_server.replication.standing import Standing, contest, standing_of
from tandemq_server.statemachine.promotion import PeerFacts

if TYPE_CHECKING:
    from tandemq_server.node.cluster.follow import UpstreamLink
    from tandemq_server.node.cluster.links import Feed


@dataclass(frozen=True, slots=True)
class Own:
    """This node's log, as peers' logs are held against it. ends: term id -> its last LSN here."""

    ends: Mapping[bytes, int]
    standing: Standing
    claim: int
    node_id: bytes

    def against(
        self, number: int, term_id: bytes, last_lsn: int, theirs: Standing | None
    ) -> tuple[bool, str]:
        """(the peer's last term is none of this log's, how this log fares where the two part)."""
        end = self.ends.get(term_id)
        foreign = bool(number) and end is None
        if theirs is None or not (foreign or (end is not None and last_lsn > end)):
            return foreign, ""
        return foreign, contest(self.standing, theirs, end).value

    def after(self, beat: Heartbeat | None, node_id: bytes) -> bool:
        """The peer wants to serve, too, and goes first: by its claim, else by its id."""
        if beat is None or not beat.wants:
            return False
        return (beat.wants, node_id) > (self.claim, self.node_id)


@dataclass(slots=True)
class PeerState:
    """One configured peer.

    tried: an attempt to reach it has ended since a promotion was last asked for. problem: why it
    cannot be reached or refuses, as last logged. lag_us: how far behind it this node last was.
    gone: its process said that it ends, not serving, and was not heard of since.
    """

    address: str
    link: UpstreamLink | None = None
    tried: bool = False
    problem: str = ""
    lag_us: int = 0
    name: str = ""
    node_id: bytes = b""
    last: PeerFacts | None = None
    heard_us: int = 0
    gone: bool = False
    #: Since when dials are refused or reset; 0 while they are not, or nobody dials.
    refused_us: int = 0
    standing: Standing | None = None
    #: How its last links ended, for the pause before the next attempt.
    again: bool = False
    refused: int = 0
    ended_at_us: int = field(default=0)

    @property
    def connected(self) -> bool:
        return self.link is not None and self.link.upstream is not None

    def ended(self, link: UpstreamLink, code: int, now_us: int) -> None:
        """A link is over; what it told is remembered."""
        if link.upstream is not None:
            self.name, self.node_id = link.name, link.upstream.node_id
            self.last = _of_follow(link.upstream, link, None, now_us)
            self.standing = _standing_of_follow(link)
            self.heard_us = now_us - link.applier.pulse.age_us(now_us)
        self.link = None
        self.refused_us = 0
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
        self.last = _of_feed(feed, None)
        self.standing = _standing_of_feed(feed)
        self.heard_us = now_us
        self.gone = True

    def heard(self) -> None:
        """A process of it lives, whatever the last one said."""
        self.gone = False


def peer_facts(
    peers: Iterable[PeerState], feeds: Iterable[Feed], own: Own | None, now_us: int
) -> tuple[PeerFacts, ...]:
    """One line for each peer: of its link as upstream, else as downstream, else as last heard.

    own: this node's log.
    """
    facts: list[PeerFacts] = []
    blind: list[PeerState] = []
    seen: set[bytes] = set()
    for peer in peers:
        upstream = peer.link.upstream if peer.link is not None else None
        if peer.link is not None and upstream is not None:
            facts.append(_of_follow(upstream, peer.link, own, now_us))
            seen.add(upstream.node_id)
        else:
            blind.append(peer)
    by_node = {f.hello.node_id: f for f in feeds if f.hello and f.hello.node_id not in seen}
    for peer in blind:
        feed = by_node.pop(peer.node_id, None)
        facts.append(_of_feed(feed, own) if feed is not None else _as_last_heard(peer, own, now_us))
    facts.extend(_of_feed(feed, own) for feed in by_node.values())
    return tuple(facts)


def _against(
    own: Own | None, number: int, term_id: bytes, last_lsn: int, theirs: Standing | None
) -> tuple[bool, str]:
    return (False, "") if own is None else own.against(number, term_id, last_lsn, theirs)


def _standing_of_follow(link: UpstreamLink) -> Standing | None:
    if link.beat is not None:
        return link.beat.standing
    upstream = link.upstream
    assert upstream is not None
    return standing_of(upstream.lineage.terms, upstream.commit_lsn, upstream.writable)


def _standing_of_feed(feed: Feed) -> Standing | None:
    if feed.beat is not None:
        return feed.beat.standing
    hello = feed.hello
    assert hello is not None
    return standing_of(hello.lineage.terms, hello.commit_lsn, hello.state == "RUNNING")


def _of_follow(upstream: Welcome, link: UpstreamLink, own: Own | None, now_us: int) -> PeerFacts:
    beat = link.beat
    last = upstream.lineage.last
    number, term_id = (last.number, last.id) if last is not None else (0, b"")
    acked = upstream.commit_lsn
    if beat is not None:
        number, term_id = beat.term_number, beat.term_id
        acked = max(acked, beat.commit_lsn)
    theirs = _standing_of_follow(link)
    foreign, outcome = _against(own, number, term_id, link.peer_lsn, theirs)
    return PeerFacts(
        upstream.node_name,
        not link.ended,
        True,
        link.writable,
        link.peer_lsn,
        number,
        term_id,
        foreign,
        acked,
        link.applier.pulse.age_us(now_us),
        outcome=outcome,
        answered=link.answered,
        first=own is not None and own.after(beat, upstream.node_id),
    )


def _of_feed(feed: Feed, own: Own | None) -> PeerFacts:
    hello, beat = feed.hello, feed.beat
    assert hello is not None
    last = hello.lineage.last
    number, term_id = (last.number, last.id) if last is not None else (0, b"")
    writable = hello.state == "RUNNING"
    if beat is not None:
        number, term_id, writable = beat.term_number, beat.term_id, beat.writable
    theirs = _standing_of_feed(feed)
    foreign, outcome = _against(own, number, term_id, feed.peer_lsn, theirs)
    return PeerFacts(
        hello.node_name,
        True,
        True,
        writable,
        feed.peer_lsn,
        number,
        term_id,
        foreign,
        hello.acked_mark,
        outcome=outcome,
        answered=feed.answered,
        first=own is not None and own.after(beat, hello.node_id),
    )


def _as_last_heard(peer: PeerState, own: Own | None, now_us: int) -> PeerFacts:
    last = peer.last
    if last is None:
        return PeerFacts(peer.name or peer.address, False, peer.tried)
    number, term_id = last.term_number, last.term_id
    foreign, outcome = _against(own, number, term_id, last.last_lsn, peer.standing)
    return PeerFacts(
        last.name,
        False,
        peer.tried,
        last.writable,
        last.last_lsn,
        number,
        term_id,
        foreign,
        last.acked_mark,
        max(0, now_us - peer.heard_us),
        peer.gone,
        outcome,
    )
