"""HTTP of the admin API and of the witness: a probe gets in however many connections say nothing.

Who has not asked anything for a while is closed; when all places are taken, whoever has waited
longest without asking makes room for the next.
"""

from __future__ import annotations

import ssl
import typing
from asyncio import AbstractEventLoop, BaseProtocol, Protocol, get_running_loop
from typing import Any

from aiohttp import web

from tandemq_server.node.loop.listening import Listener, listen

#: How long a connection between two requests is kept.
KEEPALIVE_S = 75.0
_BACKLOG = 128


class HttpAddress(typing.Protocol):
    """Where is listened. ask_s: for a TLS handshake, and for the first request behind it."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def tls(self) -> ssl.SSLContext | None: ...
    @property
    def ask_s(self) -> float: ...
    @property
    def connections_max(self) -> int: ...


class TurnedAway(Protocol):
    """Takes a connection that is one too many, and closes it."""

    def connection_made(self, transport: Any) -> None:
        transport.abort()


class WaitingRoom:
    """`places` connections at most. ask_s: how long one may take over its first request."""

    def __init__(self, loop: AbstractEventLoop, places: int, ask_s: float) -> None:
        self._loop = loop
        self._places = places
        self._ask_s = ask_s
        #: Connections that have asked nothing yet, then those between two requests; eldest first.
        self._silent: dict[Any, None] = {}
        self._idle: dict[Any, None] = {}
        self._busy: set[Any] = set()

    def enter(self, protocol: BaseProtocol) -> bool:
        """Whether there is a place for one more; somebody may have been sent away for it."""
        self._forget_closed()
        if len(self._silent) + len(self._idle) + len(self._busy) >= self._places:
            for waiting in (self._silent, self._idle):
                if waiting:
                    self._send_away(next(iter(waiting)))
                    break
            else:
                return False
        self._silent[protocol] = None
        self._loop.call_later(self._ask_s, self._overdue, protocol)
        return True

    def asks(self, protocol: Any) -> None:
        """A request of this connection has begun."""
        self._silent.pop(protocol, None)
        self._idle.pop(protocol, None)
        self._busy.add(protocol)

    def answered(self, protocol: Any) -> None:
        self._busy.discard(protocol)
        self._idle[protocol] = None

    def _overdue(self, protocol: Any) -> None:
        if protocol in self._silent:
            self._send_away(protocol)

    def _send_away(self, protocol: Any) -> None:
        self._silent.pop(protocol, None)
        self._idle.pop(protocol, None)
        # None until the connection is made, and again when it is over.
        if protocol.transport is not None:
            protocol.transport.abort()

    def _forget_closed(self) -> None:
        """A connection that is over has no transport; one not made yet neither, but is timed."""
        for protocol in [one for one in self._silent if _is_closing(one)]:
            del self._silent[protocol]
        self._idle = {one: None for one in self._idle if _is_open(one)}
        self._busy = {one for one in self._busy if _is_open(one)}


def _is_closing(protocol: Any) -> bool:
    return protocol.transport is not None and bool(protocol.transport.is_closing())


def _is_open(protocol: Any) -> bool:
    return protocol.transport is not None and not protocol.transport.is_closing()


class HttpListener:
    """An application, served behind a waiting room until it is closed."""

    def __init__(self, app: web.Application, where: HttpAddress, **more: Any) -> None:
        """`more`: further arguments of aiohttp's runner."""
        self.where = where
        self.room = WaitingRoom(get_running_loop(), where.connections_max, where.ask_s)
        self.runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            keepalive_timeout=KEEPALIVE_S,
            auto_decompress=False,
            lingering_time=1.0,
            shutdown_timeout=1.0,
            **more,
        )
        self._listener: Listener | None = None

    async def open(self) -> tuple[str, int]:
        """Listen; the address bound. Raises OSError."""
        await self.runner.setup()
        try:
            self._listener, address = await listen(
                self._accepted,
                self.where.host,
                self.where.port,
                self.where.tls,
                self.where.ask_s,
                backlog=_BACKLOG,
            )
        except BaseException:
            await self.runner.cleanup()
            raise
        return address

    def _accepted(self) -> Protocol:
        assert self.runner.server is not None
        protocol: Protocol = self.runner.server()
        return protocol if self.room.enter(protocol) else TurnedAway()

    def close(self) -> None:
        """Let nobody in any more; who is in stays until `cleanup`."""
        if self._listener is not None:
            self._listener.close()

    async def cleanup(self) -> None:
        """End every connection."""
        await self.runner.cleanup()
