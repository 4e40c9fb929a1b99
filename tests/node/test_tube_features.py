"""What tubes can do beyond the original, over a real socket: arguments in, encoded answers out."""

from __future__ import annotations

import pytest

from tests.node.harness import node

pytestmark = pytest.mark.asyncio


async def test_keys_over_the_wire() -> None:
    async with node() as bench:
        wire = await bench.dial()
        opts = {"key": "k", "window": 5}
        assert await wire.call("queue.tube.fifo:put", "one", opts) == [[0, "r", "one"]]
        assert await wire.call("queue.tube.fifo:put", "two", opts) == [[0, "r", "one", True]]
        batch = [["two", {"key": "k"}], [{"a": [1]}, {"key": "new"}], ["plain"]]
        assert await wire.call("queue.tube.fifo:put_many", batch, {"window": 9}) == [[0, 1, 2]]
        assert await wire.call("queue.tube.fifo:delete", 0) == [[0, "-", "one"]]
        assert await wire.call("queue.tube.fifo:put", "two", opts) == [[0, "-", None, True]]
        code, text = await wire.call("queue.tube.fifo:put", "two", {"key": 1})
        assert (code, text) == (32, "Invalid value of key: expected a string, got number")
