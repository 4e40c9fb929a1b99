"""What stands in for sockets: transports, wires, and who receives a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.sim_world import Stream

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection
    from tests.simulation.sim_node import SimNode


class ServerSide:
    """The transport of an accepted connection."""

    def __init__(self, node: SimNode, connection: Connection, out: Stream) -> None:
        self.node = node
        self.connection = connection
        self.out = out
        #: The incoming direction, once it is known.
        self.inward: Stream | None = None

    def write(self, data: bytes) -> None:
        self.out.write(data)

    def close(self) -> None:
        self.out.close()
        self.node.soon(0, self.gone)

    def abort(self) -> None:
        self.out.reset()
        self.node.soon(0, self.gone)

    def get_write_buffer_size(self) -> int:
        return 0

    def gone(self) -> None:
        self.node.lost(self.connection)


class PeerWire:
    """A link's wire, at either end."""

    def __init__(self, out: Stream, closed: Callable[[], None]) -> None:
        self.out = out
        self.closed = closed

    def write(self, data: bytes) -> None:
        self.out.write(data)

    def close(self) -> None:
        self.out.close()
        self.closed()


class Process:
    """A process of one incarnation: what comes for an earlier one is not for it."""

    def __init__(self, node: SimNode, incarnation: int) -> None:
        self.node = node
        self.incarnation = incarnation

    def deliver(self, call: Callable[[], None]) -> None:
        if self.node.incarnation == self.incarnation:
            self.node.deliver(call)
