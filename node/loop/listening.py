"""Listening sockets, with TLS or without: how many handshakes may be under way, and which one goes.

The event loop's own listeners begin a handshake for whoever connects, up to 300 kB each, and tell
nobody before it is done; so strangers who begin none could fill memory and descriptors. Must not
be here: what is spoken afterwards.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

#: Handshakes under way at one time, of one listener. Beyond, connections wait in the kernel.
HANDSHAKES_MAX = 128
#: So long the eldest of so many may take, in seconds, before it makes room for another.
PATIENCE_S = 0.5
#: When no connection can be accepted (no descriptors are left), until the next attempt.
AGAIN_S = 1.0


class Listener(Protocol):
    """What listens until it is closed; connections that it made live on."""

    def close(self) -> None: ...


async def listen(
    make: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    handshake_s: float,
    backlog: int = 1024,
) -> tuple[Listener, tuple[str, int]]:
    """`make()` a protocol for each connection, which is to keep its transport; the address bound.

    Raises OSError.
    """
    loop = asyncio.get_running_loop()
    if tls is None:
        # As bytes: text would go through the codec of international names, which this first one
        # would import, and no name that the configuration lets through is one.
        hosts: Any = [host.encode("ascii")]
        server = await loop.create_server(make, hosts, port, backlog=backlog)
        address = server.sockets[0].getsockname()
        return server, (address[0], address[1])
    listener = TlsListener(make, tls, handshake_s)
    return listener, await listener.begin(host, port, backlog)


class TlsListener:
    """Like the event loop's server with `ssl`, but for at most HANDSHAKES_MAX handshakes."""

    def __init__(
        self, make: Callable[[], asyncio.Protocol], tls: ssl.SSLContext, handshake_s: float
    ) -> None:
        self._make, self._tls, self._handshake_s = make, tls, handshake_s
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        #: Handshakes under way and since when, the eldest first.
        self._shaking: dict[asyncio.Task[None], float] = {}
        self._ended = asyncio.Event()

    async def begin(self, host: str, port: int, backlog: int) -> tuple[str, int]:
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, number, _, address in dict.fromkeys(found):
                one = socket.socket(family, kind, number)
                self._sockets.append(one)
                one.setblocking(False)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                _bind(one, address)
                # Who waits in the kernel behind strangers waits for a few rounds of them, no more.
                one.listen(min(backlog, 4 * HANDSHAKES_MAX))
        except BaseException:
            self.close()
            raise
        self._accepting = [self._loop.create_task(self._accept(one)) for one in self._sockets]
        bound = self._sockets[0].getsockname()
        return bound[0], bound[1]

    def close(self) -> None:
        """Nobody is let in any more, handshakes under way end."""
        for task in [*self._accepting, *self._shaking]:
            task.cancel()
        for one in self._sockets:
            # Removed first: the loop may still look at it.
            self._loop.remove_reader(one)
            one.close()
        self._sockets = []

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            await self._room()
            try:
                connection, _ = await self._loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(AGAIN_S)
                continue
            task = self._loop.create_task(self._shake(connection))
            self._shaking[task] = self._loop.time()
            task.add_done_callback(partial(self._done, connection))

    async def _room(self) -> None:
        """Wait until a handshake ends, or the eldest one has had its time."""
        while len(self._shaking) >= HANDSHAKES_MAX:
            eldest, since = next(iter(self._shaking.items()))
            left = since + PATIENCE_S - self._loop.time()
            if left <= 0:
                eldest.cancel()
            self._ended.clear()
            try:
                async with asyncio.timeout(max(left, AGAIN_S if left <= 0 else 0)):
                    await self._ended.wait()
            except TimeoutError:
                continue

    def _done(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # Before its first step: there is no transport yet that would close it.
            connection.close()
        del self._shaking[task]
        self._ended.set()

    async def _shake(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_s
            )
        except (OSError, ssl.SSLError, asyncio.CancelledError):
            # No TLS, none in time, or it made room: its transport has closed the socket.
            return


def _bind(one: socket.socket, address: tuple[object, ...]) -> None:
    try:
        one.bind(address)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        text = f"error while attempting to bind on address {address!r}: {reason}"
        raise OSError(error.errno, text) from None
