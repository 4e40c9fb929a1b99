"""One xqueue tube on a real socket, asked by asynctnt, on a node whose clock a test moves on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asynctnt
from asynctnt.exceptions import TarantoolDatabaseError

from tandemq_server.facades.registered import KNOWN
from tests.node.harness import Bench, node
from tests.xqueue.xqueue_bench import options


class PASS(float):
    """So many seconds pass, and a moment."""


class Calls:
    """`await calls("take", 0)`: values as a list, or "! text"; `other` is another connection's."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.connections: list[asynctnt.Connection] = []

    async def connect(self) -> None:
        connection = asynctnt.Connection(host="127.0.0.1", port=self.bench.port)
        await connection.connect()
        self.connections.append(connection)

    async def __call__(self, name: str, *args: Any, by: int = 0) -> Any:
        whole = name if "." in name else f"box.space.q:{name}"
        try:
            return list(await self.connections[by].call(whole, list(args)))
        except TarantoolDatabaseError as error:
            return f"! {error.message}"

    async def other(self, name: str, *args: Any) -> Any:
        return await self(name, *args, by=1)

    def now(self) -> float:
        return self.bench.shell.clock.now() / 1e6

    async def parked(self, count: int) -> None:
        """So many calls wait in the tube."""
        async with asyncio.timeout(20):
            while len(self.bench.core.engine.tubes["q"].blocked) < count:
                await asyncio.sleep(0.001)

    async def step(self, what: Any) -> None:
        """One call, some time, or the word `disconnect` or `restart`."""
        bench, engine = self.bench, self.bench.core.engine
        if isinstance(what, PASS):
            bench.shell.clock.at_least(bench.shell.clock.now() + int(what * 1e6) + 1_000)
            bench.shell._ring()
        elif what == "disconnect":
            await self.connections.pop(0).disconnect()
            async with asyncio.timeout(20):
                while engine.taken.rows:
                    await asyncio.sleep(0.001)
        elif what == "restart":
            # What a node does that begins to serve from what its log holds.
            engine.stop()
            engine.sessions.members.clear()
            engine.start()
        else:
            outcome = await self(*what)
            assert type(outcome) is list, outcome

    async def close(self) -> None:
        for connection in self.connections:
            await connection.disconnect()


def serving(
    work: Callable[[Calls], Awaitable[None]], features: dict[str, Any] | None = None, **more: Any
) -> None:
    """Run `work(calls)` on a fresh tube whose ids are 1, 2, ..."""

    async def run() -> None:
        async with node() as bench:
            bench.core.engine.drivers.update(KNOWN)
            calls = Calls(bench)
            for _ in range(2):
                await calls.connect()
            declared = options({"id": "auto_increment", **(features or {})}, **more)
            assert await calls("xqueue.upgrade", "q", declared) == []
            await asyncio.wait_for(work(calls), 30)
            await calls.close()

    asyncio.run(run())
