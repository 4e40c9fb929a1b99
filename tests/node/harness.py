"""A node's core and shell in this process, on real sockets, with limits a test can choose."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator
from typing import Any

import msgpack

from tandemq_server.drivers import BUILT_IN
from tandemq_server.engine import admin
from tandemq_server.engine.engine import Engine
from tandemq_server.facades.registered import FACADES
from tandemq_server.node.core.core import Core
from tandemq_server.node.core.identity import Accounts, ClientBounds, Identity
from tandemq_server.node.loop.clock import LogClock
from tandemq_server.node.loop.doors import ConnectionBounds
from tandemq_server.node.loop.shell import Shell
from tandemq_server.node.loop.wal_writer import WalWriter

NODE = "11111111-1111-4111-8111-111111111111"
CLUSTER = "22222222-2222-4222-8222-222222222222"


class Everybody:
    """Accounts that let anybody do anything."""

    def may(self, user: str, call: str) -> bool:
        return True

    def grantees(self, user: str) -> tuple[str, ...]:
        return (user,)

    def dialect(self, user: str) -> str | None:
        return None

    def authenticate(self, user: str, method: str, data: bytes, salt: bytes) -> bool:
        return False

    def link_secrets(self, user: str) -> tuple[bytes, ...]:
        return ()

    def guest_may(self) -> bool:
        return True


class Bench:
    """What a test holds of a running node."""

    def __init__(self, core: Core, shell: Shell, port: int, lines: list[str]) -> None:
        self.core = core
        self.shell = shell
        self.port = port
        self.lines = lines
        self.wires: list[Wire] = []

    async def dial(self, greeted: bool = True, local: str = "127.0.0.1") -> Wire:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(local, 0)
        )
        wire = Wire(reader, writer)
        self.wires.append(wire)
        if greeted:
            wire.greeting = await reader.readexactly(128)
        return wire


class Wire:
    """A bare IPROTO client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.greeting = b""
        self.sync = 0

    def send(self, rtype: int, body: dict[int, Any]) -> int:
        self.sync += 1
        packet = msgpack.packb({0: rtype, 1: self.sync}) + msgpack.packb(body)
        self.writer.write(b"\xce" + struct.pack(">I", len(packet)) + packet)
        return self.sync

    def send_call(self, name: str, *args: Any) -> int:
        return self.send(0x0A, {0x22: name, 0x21: list(args)})

    async def receive(self) -> tuple[int, int, dict[int, Any]]:
        """(sync, error code or 0, body)."""
        length = msgpack.unpackb(await self.reader.readexactly(5))
        unpacker = msgpack.Unpacker(strict_map_key=False, unicode_errors="surrogateescape")
        unpacker.feed(await self.reader.readexactly(length))
        header, body = unpacker.unpack(), unpacker.unpack()
        return header[1], header[0] & 0x7FFF, body

    async def call(self, name: str, *args: Any) -> Any:
        """The reply's values, or the error's (code, text)."""
        sync = self.send_call(name, *args)
        got, code, body = await self.receive()
        assert got == sync
        return (code, body[0x31]) if code else body[0x30]

    async def ping(self) -> bool:
        self.send(0x40, {})
        return (await self.receive())[1] == 0

    async def closed(self) -> bool:
        """Whether the server closed the connection (waits for it)."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65_536):
                pass
        return True

    def close(self) -> None:
        self.writer.close()


@contextlib.asynccontextmanager
async def node(
    limits: ClientBounds | None = None, accounts: Accounts | None = None, **options: Any
) -> AsyncIterator[Bench]:
    """A RUNNING node without a log. `options` are those of `ConnectionBounds`."""
    lines: list[str] = []

    def report(text: str, error: BaseException | None = None) -> None:
        lines.append(text)

    engine = Engine(BUILT_IN, lambda: os.urandom(16), report)
    clock = LogClock()
    engine.now = clock.now()
    core = Core(
        engine,
        Identity("a", NODE, CLUSTER),
        limits or ClientBounds(),
        accounts or Everybody(),
        facades=FACADES,
    )
    engine.start()
    core.set_state("RUNNING")
    for kind in BUILT_IN:
        admin.create_tube(engine, kind, kind, {})
    wal = WalWriter(None, "none", lambda _turn: None, lambda error: lines.append(str(error)))
    shell = Shell(
        core, wal, clock, lambda: os.urandom(32), room=ConnectionBounds(**options), log=lines.append
    )
    _, port = await shell.listen("127.0.0.1", 0, None)
    bench = Bench(core, shell, port, lines)
    sweeper = asyncio.ensure_future(shell.sweep())
    try:
        yield bench
    finally:
        sweeper.cancel()
        await shell.drain(1.0)
        for wire in bench.wires:
            wire.close()
            with contextlib.suppress(ConnectionError):
                await wire.writer.wait_closed()
