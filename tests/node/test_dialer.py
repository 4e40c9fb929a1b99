"""When a peer is dialled again after its link ended."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq_server.node.loop.dialer import AT_ONCE, Dialer


class Counted(Dialer):
    """Every attempt gives a link at once."""

    def __init__(self) -> None:
        peer = SimpleNamespace(refused="", again=False)
        peering = SimpleNamespace(peers={"b:1": peer}, redial=None)
        self.sockets: list[Any] = []
        self.reached = asyncio.Event()
        super().__init__(peering, SimpleNamespace(peers=["b:1"]), None)  # type: ignore[arg-type]

    def take(self, settings: Any) -> None:
        """No user, no password: nobody logs in here."""

    async def _reach(self, address: str) -> Any:
        self.sockets.append(SimpleNamespace(ended=asyncio.Event()))
        self.reached.set()
        return self.sockets[-1]

    async def next(self) -> Any:
        await self.reached.wait()
        self.reached.clear()
        return self.sockets[-1]


@pytest.mark.asyncio
async def test_who_ends_a_link_and_wants_it_again_waits_for_no_pause() -> None:
    """As a node does that follows again after a switch-over: both in one turn of the loop.

    Eight pauses that grow by two from 0.1 s on are 15 s.
    """
    dialer = Counted()
    dialer.start()
    try:
        async with asyncio.timeout(6):
            for _ in range(8):
                socket = await dialer.next()
                socket.ended.set()
                dialer.redial()
    finally:
        await dialer.stop()


@pytest.mark.asyncio
async def test_a_nudge_while_a_link_stands_makes_no_busy_loop() -> None:
    dialer = Counted()
    dialer.start()
    try:
        for _ in range(3):
            socket = await dialer.next()
            dialer.redial()
            await asyncio.sleep(0)
            socket.ended.set()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                while True:
                    (await dialer.next()).ended.set()
    finally:
        await dialer.stop()


@pytest.mark.asyncio
async def test_links_that_end_with_a_role_are_made_anew_at_once_but_not_for_ever() -> None:
    """Two switch-overs within a second end four links; a link that ends at once is no busy loop."""
    dialer = Counted()
    dialer.peering.peers["b:1"].again = True
    dialer.start()
    made = 0
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                while True:
                    (await dialer.next()).ended.set()
                    made += 1
    finally:
        await dialer.stop()
    assert AT_ONCE <= made <= AT_ONCE + 2
