"""TLS handshakes that strangers begin, or do not: how many there may be, and who still gets in."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trustme
import uvloop

from tandemq_server.node.loop import listening
from tandemq_server.node.loop.listening import TlsListener, listen

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
Loop = Callable[[], asyncio.AbstractEventLoop]


class Greets(asyncio.Protocol):
    #: Those that are connected; nobody else keeps them.
    alive: ClassVar[set[Greets]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is no asyncio.Transport.
        self.transport: Any = transport
        self.alive.add(self)
        self.transport.write(b"hello")

    def connection_lost(self, error: Exception | None) -> None:
        self.alive.discard(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Bench:
    """A listener and how to reach it."""

    def __init__(self, tmp_path: Path) -> None:
        authority = trustme.CA()
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(self.server)
        self.client = ssl.create_default_context()
        authority.configure_trust(self.client)
        self.port = 0

    @contextlib.asynccontextmanager
    async def listening(self, host: str = "127.0.0.1") -> AsyncIterator[TlsListener]:
        listener, (_, self.port) = await listen(Greets, host, 0, self.server, 5.0)
        assert isinstance(listener, TlsListener)
        try:
            yield listener
        finally:
            listener.close()
            await asyncio.sleep(0.05)

    async def silent(self) -> socket.socket:
        one = socket.socket()
        one.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", self.port))
        except OSError:
            one.close()
            raise
        return one

    async def greeted(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.client)
        assert await reader.readexactly(5) == b"hello"
        return reader, writer


async def ended(one: socket.socket) -> bool:
    """Whether the other side has closed it, within some seconds."""
    try:
        async with asyncio.timeout(5):
            return not await asyncio.get_running_loop().sock_recv(one, 1)
    except ConnectionError:
        return True


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def run(new_loop: Loop, story: Any) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(story)


@LOOPS
def test_silent_handshakes_are_few_and_the_eldest_makes_room(
    new_loop: Loop, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKES_MAX", 4)
    monkeypatch.setattr(listening, "PATIENCE_S", 0.05)

    async def story() -> None:
        async with bench.listening() as listener:
            strangers = [await bench.silent() for _ in range(20)]
            _, writer = await bench.greeted()
            assert len(listener._shaking) <= 4
            # Behind all of them: each had its time, and the first ones went for it.
            assert await ended(strangers[0])
            writer.close()
            for one in strangers:
                one.close()

    run(new_loop, story())


@LOOPS
def test_its_end_ends_handshakes_and_lets_connections_live(new_loop: Loop, bench: Bench) -> None:
    async def story() -> None:
        async with bench.listening() as listener:
            reader, writer = await bench.greeted()
            stranger = await bench.silent()
            while not listener._shaking:
                await asyncio.sleep(0.01)
            listener.close()
            assert await ended(stranger)
            stranger.close()
            with pytest.raises(OSError):
                await bench.silent()
            writer.write(b"still here")
            assert await reader.readexactly(10) == b"still here"
            writer.close()

    run(new_loop, story())


@LOOPS
def test_what_is_no_tls_ends_and_harms_nobody(new_loop: Loop, bench: Bench) -> None:
    async def story() -> None:
        async with bench.listening() as listener:
            stranger = await bench.silent()
            await asyncio.get_running_loop().sock_sendall(stranger, b"GET / HTTP/1.1\r\n\r\n")
            # An alert first, perhaps.
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(5):
                    while await asyncio.get_running_loop().sock_recv(stranger, 100):
                        pass
            stranger.close()
            while listener._shaking:
                await asyncio.sleep(0.01)
            _, writer = await bench.greeted()
            writer.close()

    run(new_loop, story())


def test_without_descriptors_it_tries_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "AGAIN_S", 0.01)
    tries = 0

    async def story() -> None:
        loop = asyncio.get_running_loop()
        accept = loop.sock_accept

        async def none_left(listening_socket: socket.socket) -> Any:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise OSError(24, "Too many open files")
            return await accept(listening_socket)

        monkeypatch.setattr(loop, "sock_accept", none_left)
        async with bench.listening():
            _, writer = await bench.greeted()
            writer.close()

    run(asyncio.new_event_loop, story())
    assert tries >= 3


@LOOPS
def test_an_address_in_use_is_said_and_leaves_nothing(new_loop: Loop, bench: Bench) -> None:
    async def story() -> None:
        async with bench.listening():
            with pytest.raises(OSError, match="address already in use"):
                await listen(Greets, "127.0.0.1", bench.port, bench.server, 5.0)

    run(new_loop, story())
