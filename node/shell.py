"""The event loop around the core: sockets in, one flush per turn, timers, limits, graceful end.

This is where asyncio begins. Nothing is decided here about tasks.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from node.clock import LogClock
from node.connection import Connection
from node.core import Core, Turn
from node.dialer import close_soon
from node.timing import Turns
from node.wal_writer import WalWriter
from wire.greeting import greeting

#: How much unsent output pauses reading from a connection, in bytes.
WRITE_HIGH_BYTES = 1 << 20
#: How often connections are looked over for missed deadlines, in seconds.
SWEEP_SECONDS = 1.0
#: How much the log's clock may lag behind a timer before it is looked at again, in seconds.
_TIMER_SLACK = 0.0005


class Shell:
    """One node's loop.

    handshake_s: how long a connection may sit on an unfinished frame or say nothing at first;
    idle_s: how long it may be silent later (None: for ever); connections_max: beyond, refused.
    """

    def __init__(
        self,
        core: Core,
        wal: WalWriter,
        clock: LogClock,
        new_salt: Callable[[], bytes],
        *,
        handshake_s: float = 10.0,
        idle_s: float | None = None,
        connections_max: int = 10_000,
        log: Callable[[str], None] = print,
    ) -> None:
        self.core = core
        self.wal = wal
        self.clock = clock
        self.new_salt = new_salt
        self.handshake_s = handshake_s
        self.idle_s = idle_s
        self.connections_max = connections_max
        self.log = log
        self.loop = asyncio.get_running_loop()
        self.servers: list[asyncio.Server] = []
        self.draining = False
        self._flush_asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us: int | None = None
        self._next_id = 0
        self._full_reported = False
        #: How long turns took, from their first request to their replies leaving.
        self.turns = Turns()
        wal.release = self.release

    # -- listening -------------------------------------------------------------------------------

    async def listen(
        self, host: str, port: int, tls: ssl.SSLContext | None, dialect: str = "tube"
    ) -> tuple[str, int]:
        """Accept connections that speak a dialect; returns the address bound."""
        server = await self.loop.create_server(
            lambda: Socket(self, tls is not None, dialect), host, port, ssl=tls, backlog=1024
        )
        self.servers.append(server)
        address = server.sockets[0].getsockname()
        return address[0], address[1]

    def next_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def refuse(self) -> bool:
        """Whether a new connection is one too many (logged once until there is room again)."""
        full = len(self.core.connections) >= self.connections_max
        if full and not self._full_reported:
            self.log(f"connection limit reached: {self.connections_max}; new ones are refused")
        self._full_reported = full
        return full

    # -- the turn --------------------------------------------------------------------------------

    def ask_flush(self) -> None:
        """Something may have changed: flush once, when this turn's reads are all done."""
        if not self._flush_asked:
            self._flush_asked = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self._flush_asked = False
        core = self.core
        turn = core.flush()
        if self.turns.began:
            self.turns.hand_over(turn)
        if turn.prompt:
            self._send(turn.prompt)
        if turn.frame is not None or turn.replies:
            self.wal.submit(turn, core.engine.now)
        self._arm()

    def release(self, turn: Turn) -> None:
        """Send replies whose records are as durable as promised."""
        if turn.began:
            self.turns.end(turn)
        self._send(turn.replies)

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
        due = self.core.engine.next_due() if self.core.engine.running else None
        if due == self._timer_us and (due is None or self._timer is not None):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_us = due
        if due is not None:
            wait = max(0.0, (due - self.clock.now()) / 1e6)
            self._timer = self.loop.call_later(min(wait + _TIMER_SLACK, 3600.0), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_us = None
        self.core.advance(self.clock.now())
        self.flush()

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
        for server in self.servers:
            server.close()
        self.core.shutdown()
        self.flush()
        deadline = self.loop.time() + seconds
        while self.loop.time() < deadline:
            waiting = [
                c
                for c in self.core.connections.values()
                if c.transport is not None and c.transport.get_write_buffer_size()
            ]
            if self.wal.idle and not waiting and not self._flush_asked:
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


class Socket(asyncio.Protocol):
    """One accepted socket: bytes to the core, back-pressure, deadlines."""

    def __init__(self, shell: Shell, secure: bool, dialect: str) -> None:
        self.shell = shell
        self.dialect = dialect
        self.secure = secure
        self.connection: Connection | None = None
        self.transport: Any = None
        self.heard = 0.0
        self.opened = 0.0
        self.spoken = False
        #: When the frame that is still incomplete began to arrive.
        self.stuck_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        shell = self.shell
        self.transport = transport
        if shell.draining or shell.refuse():
            self.transport.abort()
            return
        peer = transport.get_extra_info("peername")
        where = f"{peer[0]}:{peer[1]}" if peer else "?"
        salt = shell.new_salt()
        connection = Connection(shell.core, shell.next_id(), salt, where, self.secure)
        connection.transport = transport
        connection.socket = self
        connection.dialect = self.dialect
        self.connection = connection
        self.heard = self.opened = shell.loop.time()
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        shell.core.connect(connection)
        identity = shell.core.identity
        self.transport.write(greeting(identity.version, identity.node_id, salt))

    def data_received(self, data: bytes) -> None:
        connection = self.connection
        if connection is None or connection.closing:
            return
        shell = self.shell
        self.heard = shell.loop.time()
        self.spoken = True
        if connection.link is not None:
            connection.link.receive(data)
            shell.ask_flush()
            return
        if not shell._flush_asked:
            shell.turns.begin()
        if shell.turns.began:
            shell.turns.receive(shell.core, connection, data, shell.clock.now())
        else:
            shell.core.receive(connection, data, shell.clock.now())
        if not connection.decoder.pending:
            self.stuck_since = None
        elif self.stuck_since is None:
            self.stuck_since = self.heard
        if not shell._flush_asked:
            shell._flush_asked = True
            shell.loop.call_soon(shell.flush)

    def pause_writing(self) -> None:
        """The client does not read its replies: stop reading its requests."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        connection = self.connection
        if connection is None:
            return
        self.connection = None
        connection.socket = None
        connection.transport = None
        if connection.link is not None:
            connection.link.lost()
        shell = self.shell
        shell.core.disconnect(connection, shell.clock.now())
        shell.ask_flush()

    def check_deadlines(self, now: float) -> None:
        """Close a connection that dawdles over a frame, says nothing at first, or went silent."""
        connection = self.connection
        shell = self.shell
        if connection is None or connection.link is not None:
            return
        if connection.closing and now - self.heard > shell.handshake_s:
            self._expire("it does not read why it is being closed")
        elif self.stuck_since is not None and now - self.stuck_since > shell.handshake_s:
            self._expire("an unfinished frame waits for its rest")
        elif not self.spoken and now - self.opened > shell.handshake_s:
            self._expire("nothing was said after the greeting")
        elif shell.idle_s is not None and not connection.waits and now - self.heard > shell.idle_s:
            self._expire("idle")

    def _expire(self, reason: str) -> None:
        assert self.connection is not None
        self.shell.log(f"{self.connection.peer}: closed: {reason}")
        self.transport.abort()
