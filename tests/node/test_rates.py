"""Rates of tubes that come and go: a number of a space is used again."""

from __future__ import annotations

import pytest

from tandemq_server.engine.tube import EngineTube
from tandemq_server.node.observe.history import Recorder
from tests.node.harness import node

pytestmark = pytest.mark.asyncio


async def test_failures_of_a_tube_made_where_another_was_are_counted() -> None:
    async with node() as bench:
        recorder = Recorder(bench.core)
        wire = await bench.dial()

        async def made(name: str, puts: int) -> EngineTube:
            await wire.call("queue.create_tube", name, "fifo")
            for number in range(puts):
                await wire.call(f"queue.tube.{name}:put", number)
            await wire.call(f"queue.tube.{name}:take", 0)
            await wire.call(f"queue.tube.{name}:release", 0)
            return bench.core.engine.tubes[name]

        recorder.sample(100.0, ())
        first = await made("first", 5)
        recorder.sample(110.0, ())
        assert recorder.failed_per_minute(first) == 1
        for call in ("truncate", "drop"):
            await wire.call(f"queue.tube.first:{call}")
        second = await made("second", 2)
        assert second.id == first.id
        recorder.sample(120.0, ())
        assert recorder.failed_per_minute(second) == 1
