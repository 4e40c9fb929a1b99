"""What an acknowledgement on this node stands for, with the links it has now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from tandemq_server.replication.commit import PAIR, weaker

if TYPE_CHECKING:
    from tandemq_server.node.cluster.follow import UpstreamLink
    from tandemq_server.node.cluster.peering import Peering

Promise = Literal["unknown", "none", "write", "fsync"]


def promise_of(peering: Peering) -> Promise:
    """The wal.mode an acknowledgement here stands for: in pair mode the weaker of both nodes."""
    own = peering.wal.mode
    gate = peering.wal.gate
    if peering.settings.replication.ack != PAIR or (gate is not None and gate.solo):
        return cast(Promise, own)
    modes = [feed.hello.wal_mode for feed in peering.feeds if feed.relay and feed.hello]
    modes += [link.upstream.wal_mode for link in feeding(peering) if link.upstream]
    return cast(Promise, weaker(own, *modes))


def feeding(peering: Peering) -> list[UpstreamLink]:
    links = [peer.link for peer in peering.peers.values()]
    return [link for link in links if link is not None and link.applier.feeding and not link.probe]
