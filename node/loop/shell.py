"""The event loop around the core: sockets in, one flush per turn, timers, limits, graceful end.

This is where asyncio begins. Nothing is decided here about tasks.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from tandemq.model.units import SECOND_US
from tandemq_server.node.cluster.pauses import LOOK_SECONDS, READ_SECONDS, ProcessPauses
from tandemq_server.node.core.connection import Connection
from tandemq_server.node.core.core import Core
from tandemq_server.node.core.turn import Turn
from tandemq_server.node.loop.accepted import Socket
from tandemq_server.node.loop.clock import LogClock
from tandemq_server.node.loop.dialer import close_soon
from tandemq_server.node.loop.doors import ConnectionBounds, Guesses, InputRoom, Rotation
from tandemq_server.node.loop.listening import Listener, listen
from tandemq_server.node.loop.places import Places
from tandemq_server.node.loop.timing import Turns
from tandemq_server.node.loop.wal_writer import WalWriter

#: How often connections are looked over for missed deadlines, in seconds.
SWEEP_SECONDS = 1.0
#: How much the log's clock may lag behind a timer before it is looked at again, in seconds.
_TIMER_SLACK = 0.0005


class Shell:
    """One node's loop.

    room: how long connections may dawdle, and how many there may be.
    """

    def __init__(
        self,
        core: Core,
        wal: WalWriter,
        clock: LogClock,
        new_salt: Callable[[], bytes],
        *,
        room: ConnectionBounds | None = None,
        log: Callable[[str], None] = print,
    ) -> None:
        self.core = core
        self.wal = wal
        self.clock = clock
        self.new_salt = new_salt
        self.room = room = room or ConnectionBounds()
        self.log = log
        self.loop = asyncio.get_running_loop()
        self.listeners: list[Listener] = []
        self.draining = False
        self.input = InputRoom(room.input_bytes_max)
        self.guesses = Guesses()
        self.rotation = Rotation(self.loop.call_soon, lambda: clock.mono() / SECOND_US)
        self.places = Places(room.connections_max, room.reserved, room.of_one_address, log)
        self.flush_asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us: int | None = None
        self._next_id = 0
        self.pauses = ProcessPauses(
            core, clock.mono, clock.now, self._read_first, self._stood_still
        )
        self._look: asyncio.TimerHandle | None = None
        self._keep_looking()
        #: How long turns took, from their first request to their replies leaving.
        self.turns = Turns()
        wal.release = self.release

    # -- listening -------------------------------------------------------------------------------

    async def listen(
        self, host: str, port: int, tls: ssl.SSLContext | None, dialect: str = "tube"
    ) -> tuple[str, int]:
        """Accept connections that speak a dialect; returns the address bound."""
        listener, address = await listen(
            lambda: Socket(self, tls is not None, dialect), host, port, tls, self.room.handshake_s
        )
        self.listeners.append(listener)
        return address

    def next_id(self) -> int:
        self._next_id += 1
        return self._next_id

    # -- the turn --------------------------------------------------------------------------------

    def ask_flush(self) -> None:
        """Something may have changed: flush once, when this turn's reads are all done."""
        if not self.flush_asked:
            self.flush_asked = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self.flush_asked = False
        core = self.core
        try:
            turn = core.flush()
            if self.turns.began:
                self.turns.hand_over(turn)
            if turn.prompt:
                self._send(turn.prompt)
        except Exception as error:
            self.wal.broke("making a frame of what was changed", error)
            return
        if turn.frame is not None or turn.replies or turn.committed:
            self.wal.submit(turn, core.engine.now)
        self._arm()

    def release(self, turn: Turn) -> None:
        """Send replies whose records are as durable as promised."""
        if turn.began:
            self.turns.end(turn)
        self._send(turn.replies)
        for tell in turn.committed:
            tell()

    def _send(self, replies: list[tuple[Connection, bytes]]) -> None:
        limit = self.core.limits.output_bytes_max
        for connection, data in replies:
            transport = connection.transport
            if connection.lost or transport is None:
                continue
            if connection.closing:
                self.log(f"{connection.peer}: closed: {connection.reason}")
                if data:
                    transport.write(data)
                    transport.close()
                else:
                    transport.abort()
                continue
            transport.write(data)
            if transport.get_write_buffer_size() > limit:
                self.log(f"{connection.peer}: closed: output limit reached, replies are not read")
                transport.abort()

    def _arm(self) -> None:
        """Sleep until the next deadline, no longer."""
        serves = self.core.engine.running and not self.pauses.reading
        due = self.core.engine.next_due() if serves else None
        if due == self._timer_us and (due is None or self._timer is not None):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_us = due
        if due is not None:
            wait = max(0.0, (due - self.clock.now()) / SECOND_US)
            self._timer = self.loop.call_later(min(wait + _TIMER_SLACK, 3600.0), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_us = None
        self.core.advance(self.clock.now())
        self.flush()

    # -- pauses of this process ------------------------------------------------------------------

    def _keep_looking(self) -> None:
        self._look = self.loop.call_later(LOOK_SECONDS, self._keep_looking)
        self.pauses.look()

    def _read_first(self, then: Callable[[], None]) -> None:
        """Every socket that has something is read before this timer comes."""

        def go_on() -> None:
            then()
            self.flush()

        self.loop.call_later(READ_SECONDS, go_on)

    def _stood_still(self, seconds: float) -> None:
        """Nobody was silent meanwhile: nobody was listened to."""
        if self.core.engine.running:
            self.log(f"this process stood still for {seconds:.2f} s: leases are extended by it")
        for connection in list(self.core.connections.values()):
            if connection.socket is not None:
                connection.socket.forgive(seconds)
        # The loop's own timers do not count the time for which the machine slept.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- background ------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Close connections that missed a deadline; pull the clock; let the log settle."""
        published = -1
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.clock.slew()
            now = self.loop.time()
            for connection in list(self.core.connections.values()):
                if connection.socket is not None:
                    connection.socket.check_deadlines(now)
            if self.wal.durable_lsn != published:
                published = self.wal.durable_lsn
                self.wal.settle()

    # -- the end ---------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Stop listening, tell watchers, end waits, send what is owed, close; `seconds` at most."""
        self.draining = True
        if self._look is not None:
            self._look.cancel()
        for listener in self.listeners:
            listener.close()
        self.core.shutdown()
        self.flush()
        deadline = self.loop.time() + seconds
        while self.loop.time() < deadline:
            waiting = [
                c
                for c in self.core.connections.values()
                if c.transport is not None and c.transport.get_write_buffer_size()
            ]
            if self.wal.idle and not waiting and not self.flush_asked:
                break
            await asyncio.sleep(0.01)
        for connection in list(self.core.connections.values()):
            if connection.transport is not None:
                connection.transport.close()
        # What their going changed (tasks given back) is still written.
        await self._until(lambda: not self.core.connections, deadline)
        for connection in list(self.core.connections.values()):
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)
        self.flush()
        await self._until(lambda: self.wal.idle, deadline)

    async def _until(self, reached: Callable[[], bool], deadline: float) -> None:
        while not reached() and self.loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class FeedSocket:
    """The wire of a downstream: a connection that SUBSCRIBE has switched over."""

    def __init__(self, transport: Any, window_bytes: int) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=2 * window_bytes)

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        close_soon(self.transport)
