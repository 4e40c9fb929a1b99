"""One accepted socket: bytes to the core a slice at a time, back-pressure, deadlines.

Here: when to read, and for how long to put up with whom. Not here: what requests mean.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tandemq.model.units import MIB
from tandemq_server.node.core.connection import Connection
from tandemq_server.node.loop.doors import Slices
from tandemq_server.node.loop.places import network_of
from tandemq_server.wire.greeting import greeting, instance_uuid

if TYPE_CHECKING:
    from tandemq_server.node.loop.shell import Shell

#: How much unsent output pauses reading from a connection, in bytes.
WRITE_HIGH_BYTES = MIB
#: Why nothing is read for now: replies are not read, a slice is left, no room, a wrong password.
UNREAD, BACKLOG, NO_ROOM, PENALTY = 1, 2, 4, 8


class Socket(asyncio.Protocol):
    """See the module."""

    def __init__(self, shell: Shell, secure: bool, dialect: str) -> None:
        self.shell = shell
        self.dialect = dialect
        self.secure = secure
        self.connection: Connection | None = None
        self.transport: Any = None
        self.address = "?"
        self.heard = 0.0
        self.opened = 0.0
        self.spoken = False
        #: When the frame that is still incomplete began to arrive.
        self.stuck_since: float | None = None
        #: It came when only places for peers and operators were left.
        self.late = False
        self.slices = Slices()
        #: What was read and waits for its turn.
        self.rest = b""
        self.done = 0
        self._paused = 0
        self._holds = False
        self._failures = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        shell = self.shell
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = network_of(peer[0]) if peer else "?"
        if shell.draining or not shell.places.enter(self):
            self.transport.abort()
            return
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
        if connection.stranger or self.late:
            shell.places.stranger(self)
        if connection.stranger and (wait := shell.guesses.wait(self.address, self.heard)):
            self._pause(PENALTY)
            shell.loop.call_later(wait, self._go_on_after, PENALTY)
        identity = shell.core.identity
        self.transport.write(greeting(identity.version, instance_uuid(identity.node_id), salt))

    # -- reading ---------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        connection = self.connection
        if connection is None or connection.closing:
            return
        if self.rest:
            self.rest = self.rest[self.done :] + data
            self.done = 0
            return
        if connection.link is None:
            if self._paused:
                # A loop may read on once whatever it was told while the connection was made.
                self._leave(data, 0)
                return
            size = max(self.slices.bytes, connection.decoder.missing)
            if self.shell.rotation.spent():
                size = 0
            if len(data) > size:
                self._leave(data, size)
                if size:
                    self._slice(connection, data[:size])
                return
        self._receive(connection, data)

    def _slice(self, connection: Connection, data: bytes) -> None:
        clock = self.shell.rotation.clock
        began = clock()
        self._receive(connection, data)
        self.slices.took(len(data), clock() - began)

    def _leave(self, data: bytes, done: int) -> None:
        """What is behind the first `done` bytes waits for its turn."""
        connection = self.connection
        assert connection is not None
        self.rest, self.done = data, done
        others = self._paused & ~BACKLOG
        self._pause(BACKLOG)
        if others:
            self.transport.pause_reading()
        else:
            self.shell.rotation.add(_share(connection), self.go_on)

    def go_on(self) -> bool:
        """Work on the next slice of what was left; True when there is more."""
        connection = self.connection
        if connection is None or connection.closing or not self.rest:
            self.rest, self.done = b"", 0
            return False
        if self._paused & ~BACKLOG:
            # Whatever keeps it from being read keeps this, too: `_go_on_after` comes back to it.
            return False
        whole = connection.link is not None
        size = len(self.rest) if whole else max(self.slices.bytes, connection.decoder.missing)
        data = self.rest[self.done : self.done + size]
        self.done += len(data)
        if self.done >= len(self.rest):
            self.rest, self.done = b"", 0
        self._slice(connection, data)
        if not self.rest:
            self._go_on_after(BACKLOG)
        return bool(self.rest)

    def _receive(self, connection: Connection, data: bytes) -> None:
        shell = self.shell
        self.heard = shell.loop.time()
        self.spoken = True
        if connection.link is not None:
            connection.link.receive(data)
            shell.ask_flush()
            return
        stranger = connection.stranger
        if not shell.flush_asked:
            shell.turns.begin()
        if shell.turns.began:
            shell.turns.receive(shell.core, connection, data, shell.clock.now())
        else:
            shell.core.receive(connection, data, shell.clock.now())
        if connection.decoder.pending:
            self._held(connection)
        elif self._holds:
            self._released()
        if stranger:
            self._looked_at(connection)
        elif self.late:
            self._tell_late(connection)
        if not shell.flush_asked:
            shell.flush_asked = True
            shell.loop.call_soon(shell.flush)

    def _held(self, connection: Connection) -> None:
        """A request has begun and is not complete."""
        self._holds = True
        if self.stuck_since is None:
            self.stuck_since = self.heard
        self.shell.input.hold(self, connection.decoder.pending)

    def _released(self) -> None:
        self._holds = False
        self.stuck_since = None
        self.shell.input.hold(self, 0)

    # -- strangers and late comers ---------------------------------------------------------------

    def _looked_at(self, connection: Connection) -> None:
        """Somebody who had not logged in said something."""
        shell = self.shell
        if not connection.stranger:
            if self.late:
                self._tell_late(connection)
            else:
                shell.places.proved(self)
        for _ in range(connection.failed_logins - self._failures):
            shell.guesses.failed(self.address, self.heard)
        self._failures = connection.failed_logins

    def _tell_late(self, connection: Connection) -> None:
        """The places that were left are for peers and operators only."""
        core = self.shell.core
        if connection.link is not None or core.may_replicate(connection):
            self.late = False
            self.shell.places.proved(self)
        elif not connection.stranger:
            core.close(connection, "connection limit reached: what is left is for peers")

    # -- not reading -----------------------------------------------------------------------------

    def _pause(self, why: int) -> None:
        if not self._paused and not self.transport.is_closing():
            self.transport.pause_reading()
        self._paused |= why

    def _go_on_after(self, why: int) -> None:
        """One of the reasons not to read is gone."""
        if not self._paused & why or self.connection is None:
            return
        self._paused &= ~why
        if not self._paused:
            if not self.transport.is_closing():
                self.transport.resume_reading()
        elif self._paused == BACKLOG and why != BACKLOG:
            assert self.connection is not None
            self.shell.rotation.add(_share(self.connection), self.go_on)

    def starve(self) -> None:
        self._pause(NO_ROOM)

    def feed(self) -> None:
        # Its time was not its own.
        if self.stuck_since is not None:
            self.stuck_since = self.shell.loop.time()
        self._go_on_after(NO_ROOM)

    def pause_writing(self) -> None:
        """The client does not read its replies: stop reading its requests."""
        self._pause(UNREAD)

    def resume_writing(self) -> None:
        self._go_on_after(UNREAD)

    # -- the end ---------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        connection = self.connection
        if connection is None:
            return
        self.connection = None
        self.rest = b""
        connection.socket = None
        connection.transport = None
        if connection.link is not None:
            connection.link.lost()
        shell = self.shell
        shell.places.leave(self)
        if self._holds:
            self._released()
        shell.core.disconnect(connection, shell.clock.now())
        shell.ask_flush()

    def forgive(self, seconds: float) -> None:
        """The node did not listen for so long: that was not its silence."""
        self.heard += seconds
        self.opened += seconds
        if self.stuck_since is not None:
            self.stuck_since += seconds

    def check_deadlines(self, now: float) -> None:
        """Close a connection that dawdles over a frame, says nothing at first, or went silent."""
        connection, room = self.connection, self.shell.room
        if connection is None or connection.link is not None:
            return
        if connection.closing and now - self.heard > room.handshake_s:
            self.expire("it does not read the reason for closing it")
        elif self._paused & NO_ROOM:
            return
        elif self.stuck_since is not None and now - self.stuck_since > room.handshake_s:
            self.expire("the rest of a frame did not come")
        elif not self.spoken and now - self.opened > room.handshake_s:
            self.expire("nothing was said after the greeting")
        elif (connection.stranger or self.late) and now - self.opened > room.handshake_s:
            self.expire(f"no login within {room.handshake_s:g} s")
        elif room.idle_s is not None and not connection.waits and now - self.heard > room.idle_s:
            self.expire("idle")

    def make_room(self) -> None:
        """Somebody else gets its place."""
        self.transport.abort()

    def expire(self, reason: str) -> None:
        """Close it without another word, and say so in the log."""
        if self.connection is None:
            return
        self.shell.places.proved(self)
        self.shell.log(f"{self.connection.peer}: closed: {reason}")
        self.transport.abort()


def _share(connection: Connection) -> str:
    """Whose share of the turns it takes; all strangers have one."""
    return "" if connection.stranger else connection.user
