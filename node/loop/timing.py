"""Latency of each call, read off some turns of the event loop; the other turns do not know of it.

In a measured turn a connection's table of calls is replaced by one that counts what it hands out.
When the turn's replies leave, every call it answered took as long as the turn did: reading, the
call, the log and, in pair mode, the replica. Calls that wait for a task are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import randrange
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tandemq_server.node.loop.latency import FAST_BUCKETS, Latency

if TYPE_CHECKING:
    from tandemq_server.node.core.calls import Handler
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core
    from tandemq_server.node.core.turn import Turn

#: One turn in so many is measured, on average. The gaps differ by chance: workers that repeat
#: take, ack, take, ack would else be seen at one of the two only.
MEASURE_EVERY = 8


def kind_of(name: bytes) -> str:
    """The call without its tube: `put` of `queue.tube.jobs:put` and of `queue15.put`."""
    return name.rpartition(b":")[2].rpartition(b".")[2].decode("ascii", "replace")


class CountingCalls:
    """A table of calls as `Core.receive` reads one: what it finds counts itself when it answers."""

    __slots__ = ("connection", "core", "counts", "found", "table")

    def __init__(self, core: Core, connection: Connection, counts: dict[str, int]) -> None:
        self.core = core
        self.connection = connection
        self.table: Mapping[bytes, Handler] = connection.calls
        self.counts = counts
        self.found: dict[bytes, tuple[Handler, Handler]] = {}

    def get(self, name: bytes) -> Handler:
        """Raises what `Core.find` raises: an unknown or forbidden call is nobody's latency."""
        # Looked up each time: a tube may be dropped by the call before this one.
        handler = self.table.get(name) or self.core.find(self.connection, name)
        known = self.found.get(name)
        if known is None or known[0] is not handler:
            known = self.found[name] = handler, _counted(handler, kind_of(name), self.counts)
        return known[1]


def _counted(handler: Handler, kind: str, counts: dict[str, int]) -> Handler:
    def call(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        reply = handler(connection, ticket, args)
        if reply is not None:
            counts[kind] = counts.get(kind, 0) + 1
        return reply

    return call


class Turns:
    """Which turns are measured, and what was found. Seconds.

    whole: of turns; calls: by kind of call, as many observations as calls were answered.
    """

    def __init__(self, gap: Callable[[], int] = lambda: randrange(1, 2 * MEASURE_EVERY)) -> None:
        self.whole = Latency(FAST_BUCKETS)
        self.calls: dict[str, Latency] = {}
        self.began = 0.0
        self._counts: dict[str, int] = {}
        self._gap = gap
        self._until = gap()

    def begin(self) -> None:
        """A turn begins with the first bytes that are read in it."""
        self._until -= 1
        if not self._until:
            self._until = self._gap()
            self._counts = {}
            self.began = perf_counter()

    def receive(self, core: Core, connection: Connection, data: bytes, now: int) -> None:
        """`core.receive` in a measured turn."""
        plain = connection.calls
        table = CountingCalls(core, connection, self._counts)
        counted: Any = table
        connection.calls = counted
        core.receive(connection, data, now)
        if connection.calls is counted:
            connection.calls = plain

    def hand_over(self, turn: Turn) -> None:
        """The turn is flushed: its replies may leave now or after later turns."""
        turn.began, turn.calls = self.began, self._counts
        self.began = 0.0

    def end(self, turn: Turn) -> None:
        """The replies of a measured turn leave."""
        seconds = perf_counter() - turn.began
        self.whole.observe(seconds)
        for kind, count in (turn.calls or {}).items():
            latency = self.calls.get(kind)
            if latency is None:
                latency = self.calls[kind] = Latency(FAST_BUCKETS)
            latency.observe(seconds, count)
