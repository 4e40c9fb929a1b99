"""One connection to one node: over the stock connector, which knows no TLS, or a blocking socket.

Here: connecting, and what went wrong with it. Must not be here: which node is asked (find.py).
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from typing import TYPE_CHECKING, Any

import asynctnt
from asynctnt.connection import ConnectionState

from tandemq.client.errors import TlsRefused
from tandemq.client.tls import is_tls, refused, speaks_tls

if TYPE_CHECKING:
    from tandemq.client.tls import Dialling, Tls

GREETING_BYTES = 128
CLOSE_SECONDS = 1.0
#: An IPROTO ping. A node answers it behind its greeting; one that waits for a handshake of TLS
#: closes the connection at once, instead of leaving us to wait.
_PING = b"\xce\x00\x00\x00\x05\x82\x00\x40\x01\x00"


class StockConnection(asynctnt.Connection):  # type: ignore[misc]
    """The stock connection without schema and reconnects, over TLS where told."""

    def __init__(self, secure: Dialling | None, **options: Any) -> None:
        """`options`: the connector's; `secure` None is without TLS."""
        super().__init__(
            fetch_schema=False, auto_refetch_schema=False, reconnect_timeout=0, **options
        )
        self._context: ssl.SSLContext | None = secure[0] if secure else None
        self._name: str | None = secure[1] if secure else None
        self._ready: asyncio.Future[Any] | None = None

    async def _connect(self, return_exceptions: bool = True) -> None:
        """Once, with a handshake. Raises TlsRefused, OSError, TimeoutError, TarantoolError."""
        if self._context is None:
            await super()._connect(return_exceptions)
            return
        loop = asyncio.get_running_loop()
        self._set_state(ConnectionState.CONNECTING)
        transport = None
        try:
            async with asyncio.timeout(self._connect_timeout):
                transport, protocol = await self._dialled(loop, self._context)
                assert self._ready is not None
                await self._ready
        except BaseException as error:
            if transport is not None:
                transport.abort()
            self._set_state(ConnectionState.DISCONNECTED)
            told = refused(f"{self._host}:{self._port}", error)
            if told is None:
                raise
            raise told from None
        self._transport, self._protocol = transport, protocol
        self._set_state(ConnectionState.CONNECTED)
        self._set_db(protocol.get_common_db())
        self._normalize_api()
        if self._ping_timeout:
            self._ping_task = loop.create_task(self._ping_task_func())

    async def _dialled(
        self, loop: asyncio.AbstractEventLoop, context: ssl.SSLContext
    ) -> tuple[asyncio.Transport, Any]:
        self._ready = loop.create_future()
        return await loop.create_connection(
            functools.partial(self.protocol_factory, self._ready, loop),
            self._host,
            self._port,
            ssl=context,
            server_hostname=self._name or self._host,
            ssl_shutdown_timeout=CLOSE_SECONDS,
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Also before the greeting came, which the connector waits for in vain."""
        if self._ready is not None and not self._ready.done():
            where = f"{self._host}:{self._port}"
            self._ready.set_exception(
                exc
                or TlsRefused(f"{where} ended the handshake: does it require a client certificate?")
            )
        super().connection_lost(exc)


async def greeted(host: str, port: int) -> None:
    """Wait for the greeting, on a connection of its own. Raises TlsRefused, OSError, EOFError.

    A node that is frozen is connected to by its kernel and says nothing; the connector would leave
    such a connection behind, open, each time.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(_PING)
        await reader.readexactly(GREETING_BYTES)
    except (EOFError, ConnectionError):
        if await is_tls(host, port):
            raise speaks_tls(f"{host}:{port}") from None
        raise
    finally:
        writer.transport.abort()


def blocking(host: str, port: int, tls: Tls | None, seconds: float) -> socket.socket:
    """A connected socket, over TLS where told, that waits so long for whatever it is asked.

    Raises TlsRefused, OSError, and ValueError for files of `tls` that do not serve.
    """
    secure = tls.dialling() if tls is not None else None
    plain = socket.create_connection((host, port), seconds)
    if secure is None:
        return plain
    context, name = secure
    try:
        return context.wrap_socket(plain, server_hostname=name or host)
    except ssl.SSLError as error:
        plain.close()
        told = refused(f"{host}:{port}", error)
        assert told is not None
        raise told from None
