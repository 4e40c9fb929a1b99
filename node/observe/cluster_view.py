"""The cluster as one node sees it, made from that node's status."""

from __future__ import annotations

from tandemq_server.node.observe.answers import ClusterNode, ClusterStatus, NodeStatus


def cluster_of(status: NodeStatus, address: str) -> ClusterStatus:
    """The cluster as one node's status shows it; `address` is where that node listens."""
    here = ClusterNode(
        status.name,
        address,
        True,
        True,
        status.state,
        status.writable,
        status.term.number if status.term else None,
        status.lsn,
        status.lag,
        status.problem,
    )
    others = tuple(
        ClusterNode(
            peer.name,
            peer.address,
            False,
            peer.connected,
            peer.state,
            peer.connected and peer.writable,
            peer.term,
            peer.lsn,
            peer.lag,
            peer.problem,
        )
        for peer in status.peers
    )
    nodes = (here, *others)
    writable = tuple(node.name or node.address for node in nodes if node.writable)
    return ClusterStatus(status.cluster_id, status.name, writable, len(writable) > 1, nodes)
