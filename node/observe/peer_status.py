"""The peers as the admin API shows them, read from both ends of their links."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from uuid import UUID

from tandemq.model.units import SECOND_US
from tandemq_server.node.cluster.promise import feeding
from tandemq_server.node.observe.answers import Lag, LossBoundAnswer, Peer, State
from tandemq_server.statemachine import promotion

if TYPE_CHECKING:
    from tandemq_server.node.cluster.follow import UpstreamLink
    from tandemq_server.node.cluster.links import Feed
    from tandemq_server.node.cluster.peering import Peering


def peers_of(peering: Peering) -> tuple[Peer, ...]:
    """Every configured peer, then downstreams nobody configured here."""
    now = peering.mono()
    feeds = {feed.hello.node_id: feed for feed in peering.feeds if feed.hello is not None}
    found = []
    for peer in peering.peers.values():
        feed = feeds.pop(peer.node_id, None)
        if peer.link is not None and peer.connected:
            found.append(_of_link(peer.address, peer.link, feed, now))
        elif feed is not None:
            found.append(_of_feed(peer.address, feed, now, peer.problem))
        else:
            heard = (now - peer.heard_us) / SECOND_US if peer.heard_us else None
            last = peer.last
            found.append(
                Peer(
                    peer.address,
                    name=peer.name or None,
                    node_id=str(UUID(bytes=peer.node_id)) if peer.node_id else None,
                    term=last.term_number if last else None,
                    lsn=last.last_lsn if last else None,
                    heard_seconds=heard,
                    problem=peer.problem or "not connected",
                )
            )
    found.extend(_of_feed(feed.address, feed, now, "") for feed in feeds.values())
    return tuple(found)


def master_of(peering: Peering) -> tuple[str, str] | None:
    """Name and address of another node that serves, if a link to one lives."""
    for peer in peers_of(peering):
        if peer.connected and peer.writable:
            return peer.name or peer.address, peer.address
    return None


def _of_link(address: str, link: UpstreamLink, feed: Feed | None, now: int) -> Peer:
    upstream, beat, applier = link.upstream, link.beat, link.applier
    assert upstream is not None
    last = upstream.lineage.last
    relay = feed.relay if feed is not None else None
    lag = Lag(applier.lag_records, applier.lag_bytes, applier.lag_us(now) / SECOND_US)
    offset = applier.clock.offset_us
    return Peer(
        address,
        upstream.node_name,
        str(UUID(bytes=upstream.node_id)),
        True,
        "downstream" if relay is not None else "upstream" if applier.feeding else "none",
        cast(State, beat.state if beat is not None else upstream.state),
        link.writable,
        beat.term_number if beat is not None else last.number if last is not None else None,
        link.peer_lsn,
        relay.acked_lsn if relay is not None else None,
        _relay_lag(feed, now) if relay is not None else lag if applier.feeding else None,
        applier.pulse.age_us(now) / SECOND_US,
        offset / SECOND_US if offset is not None else None,
        link.problem or None,
    )


def _of_feed(address: str, feed: Feed, now: int, problem: str) -> Peer:
    hello, beat = feed.hello, feed.beat
    assert hello is not None
    last = hello.lineage.last
    return Peer(
        address,
        hello.node_name,
        str(UUID(bytes=hello.node_id)),
        True,
        "downstream" if feed.relay is not None else "none",
        cast(State, beat.state if beat is not None else hello.state),
        beat is not None and beat.writable,
        beat.term_number if beat is not None else last.number if last is not None else None,
        feed.peer_lsn,
        feed.relay.acked_lsn if feed.relay is not None else None,
        _relay_lag(feed, now),
        feed.pulse.age_us(now) / SECOND_US,
        None,
        problem or None,
    )


def _relay_lag(feed: Feed | None, now: int) -> Lag | None:
    relay = feed.relay if feed is not None else None
    if relay is None:
        return None
    return Lag(relay.lag_records, relay.lag_bytes, relay.lag_us(now) / SECOND_US)


def own_lag(peering: Peering) -> Lag | None:
    """How far this node is behind the one that feeds it; None when nobody does."""
    now = peering.mono()
    lags = [
        Lag(link.applier.lag_records, link.applier.lag_bytes, link.applier.lag_us(now) / SECOND_US)
        for link in feeding(peering)
    ]
    return max(lags, key=lambda lag: lag.records, default=None)


def following(peering: Peering) -> bool:
    """Fed by a node that leads."""
    return any(link.writable for link in feeding(peering))


def loss_bound(peering: Peering) -> LossBoundAnswer:
    """What promoting this node now, by force, would give up at most."""
    bound = promotion.loss_bound(peering.facts())
    return LossBoundAnswer(
        bound.records is not None, bound.records, None, bound.age_us / SECOND_US, bound.text
    )


def loss_of(peering: Peering, name: str) -> LossBoundAnswer:
    """What promoting that peer now would give up at most, as far as this node can tell."""
    for peer in peers_of(peering):
        if (peer.name or peer.address) != name:
            continue
        if peer.connected and peer.role == "downstream" and peer.lag is not None:
            text = f"what {name} has not confirmed yet"
            return LossBoundAnswer(True, peer.lag.records, peer.lag.bytes, peer.lag.seconds, text)
        if peer.lsn is not None:
            missing = max(0, peering.core.engine.lsn - peer.lsn)
            text = f"{name} does not follow this node; it was last heard of at LSN {peer.lsn}"
            return LossBoundAnswer(False, missing, None, peer.heard_seconds, text)
    return LossBoundAnswer(False, None, None, None, f"nothing is known of {name}")
