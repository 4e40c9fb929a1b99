"""A node's state in words a person understands.

Here: sentences made of values. Must not be here: where the values come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandemq_server.node.observe.answers import NodeStatus, Peer


def summary(status: NodeStatus) -> str:
    """One line: "master, followed by b, 0 behind"; "replica, following a, 0 behind"."""
    if not status.live:
        return f"stopped: {status.problem or 'its log failed'}"
    if status.state == "RUNNING":
        return _master(status)
    if status.state == "STARTUP":
        return f"about to serve: {_why(status) or 'making sure that nothing is missing'}"
    if status.state == "ENDING":
        return "stops serving"
    feeding = [peer for peer in status.peers if peer.connected and peer.role == "upstream"]
    if status.following and feeding:
        return f"replica, following {_name(feeding[0])}, {_behind(status.lag)}"
    if not status.complete:
        return "replica, its copy is not whole yet"
    serving = [_name(peer) for peer in status.peers if peer.connected and peer.writable]
    if serving:
        return f"replica, not following {serving[0]} yet"
    if not status.peers:
        return f"read-only: {_why(status)}"
    lost = [_name(peer) for peer in status.peers if not peer.connected]
    if lost:
        return f"replica, nobody feeds it: {' and '.join(lost)} cannot be reached"
    return f"replica, nobody feeds it: no node serves ({_why(status)})"


def _master(status: NodeStatus) -> str:
    if not status.writable:
        return "about to serve: its first record waits to be confirmed"
    followers = [peer for peer in status.peers if peer.connected and peer.role == "downstream"]
    if followers:
        told = " and ".join(f"{_name(peer)}, {_behind(peer.lag)}" for peer in followers)
        return f"master, followed by {told}"
    if status.solo:
        return "master, alone: what it acknowledges is on one disk"
    return "master, followed by nobody" if status.peers else "master, a node alone"


def _why(status: NodeStatus) -> str:
    return why_read_only(status.ro_reason) or ""


def why_read_only(reason: str | None) -> str | None:
    """`config` is a word of the machine's."""
    if reason == "config":
        return "it was told to be, by read_only or `tandemq role ro`"
    return reason


def _name(peer: Peer) -> str:
    return peer.name or peer.address


def _behind(lag: object) -> str:
    records = getattr(lag, "records", None)
    return "how far behind is not known" if records is None else f"{records} behind"
