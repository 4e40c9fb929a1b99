"""An arbiter in memory, for tests: one register shared by any number of clients, and its weather.

Keeps to the contract of base.py, what may go wrong included: requests and replies that are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from tandemq_server.arbiters.base import SwapLost, Unreachable, seat_map, seat_of, went_back
from tandemq_server.statemachine.seat import Seat, SeatReading


class Register:
    """What all clients share. now(): seconds; ttl_s: how long a node's key lives."""

    def __init__(self, now: Callable[[], float], ttl_s: float = 3.0) -> None:
        self.reading = SeatReading(None, 0)
        self.now = now
        self.ttl_s = ttl_s
        self.ends: dict[str, float] = {}
        self.changed = asyncio.Event()

    def swap(self, revision: int, seat: Seat) -> SeatReading:
        if revision != self.reading.revision:
            raise SwapLost(self.reading)
        return self.put(SeatReading(seat, revision + 1))

    def put(self, reading: SeatReading) -> SeatReading:
        """As an operator would, or a copy brought back."""
        self.reading = reading
        self.changed.set()
        self.changed = asyncio.Event()
        return reading


class MemoryArbiter:
    """One node's way to the register.

    down: nothing gets through; lose_requests, lose_replies: of how many swaps to come.
    """

    def __init__(self, register: Register, name: str = "memory") -> None:
        self.register = register
        self.name = name
        self.down = False
        self.lose_requests = 0
        self.lose_replies = 0

    async def read(self) -> SeatReading:
        self._reach()
        return self.register.reading

    async def swap(self, revision: int, seat: Seat) -> SeatReading:
        self._reach()
        seat = seat_of(seat_map(seat))
        if self.lose_requests:
            self.lose_requests -= 1
            raise Unreachable(f"{self.name}: no answer")
        try:
            reading = self.register.swap(revision, seat)
        finally:
            if self.lose_replies:
                self.lose_replies -= 1
                raise Unreachable(f"{self.name}: no answer")
        return reading

    async def keep_alive(self, node: str) -> None:
        self._reach()
        self.register.ends[node] = self.register.now() + self.register.ttl_s

    async def alive(self) -> frozenset[str]:
        self._reach()
        now = self.register.now()
        return frozenset(node for node, end in self.register.ends.items() if end > now)

    async def watch(self, revision: int) -> AsyncGenerator[SeatReading, None]:
        while True:
            self._reach()
            changed, reading = self.register.changed, self.register.reading
            if reading.revision < revision:
                raise went_back(self.name, reading.revision, revision)
            if reading.revision > revision:
                revision = reading.revision
                yield reading
            else:
                await changed.wait()

    async def close(self) -> None:
        """Nothing is held."""

    def _reach(self) -> None:
        if self.down:
            raise Unreachable(f"{self.name}: no answer")
