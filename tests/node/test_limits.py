"""Every limit of the listener, hit on a real socket."""

from __future__ import annotations

import asyncio
import struct

import msgpack
import pytest

from tandemq_server.node.core.identity import ClientBounds
from tandemq_server.node.loop import shell as shell_module
from tests.node.harness import Wire, node

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def quick_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "SWEEP_SECONDS", 0.02)


async def settled(wire: Wire) -> None:
    """The server has handled everything sent so far."""
    assert await wire.ping()


async def test_frame_over_the_limit_closes_with_an_error() -> None:
    async with node(ClientBounds(frame_bytes_max=1024)) as bench:
        wire = await bench.dial()
        wire.writer.write(b"\xce" + struct.pack(">I", 1025))
        sync, code, body = await wire.receive()
        assert (sync, code) == (0, 20)
        assert "1024" in body[0x31]
        assert await wire.closed()
        assert any("framing lost" in line for line in bench.lines)


@pytest.mark.parametrize("size", [1024, 1025])
async def test_frame_limit_to_the_byte(size: int) -> None:
    async with node(ClientBounds(frame_bytes_max=1024)) as bench:
        wire = await bench.dial()
        head = msgpack.packb({0: 10, 1: 1}) + b"\x82\x22" + msgpack.packb("queue.tube.fifo:put")
        head += b"\x21\x91\xda"
        text = b"x" * (size - len(head) - 2)
        packet = head + struct.pack(">H", len(text)) + text
        assert len(packet) == size
        wire.writer.write(b"\xce" + struct.pack(">I", size) + packet)
        assert (await wire.receive())[1] == (0 if size == 1024 else 20)


async def test_payload_over_the_limit_is_refused_and_changes_nothing() -> None:
    async with node(ClientBounds(payload_bytes_max=100)) as bench:
        wire = await bench.dial()
        code, text = await wire.call("queue.tube.fifo:put", "x" * 99)
        assert code == 110
        assert "payload_bytes_max" in text
        assert (await wire.call("queue.tube.fifo:put", "x" * 98))[0][0] == 0
        code, _ = await wire.call("queue.tube.fifo:put_many", [["ok"], ["x" * 200]])
        assert code == 110
        assert bench.core.engine.tubes["fifo"].statistics()["tasks"]["total"] == 1


@pytest.mark.parametrize("depth", [8, 9])
async def test_nesting_limit(depth: int) -> None:
    async with node(ClientBounds(nesting_max=8)) as bench:
        wire = await bench.dial()
        value: object = 1
        for _ in range(depth):
            value = [value]
        answer = await wire.call("queue.tube.fifo:put", value)
        if depth > 8:
            assert answer[0] == 20
            assert bench.core.engine.tubes["fifo"].statistics()["tasks"]["total"] == 0
        else:
            assert answer[0][1] == "r"


async def test_silence_after_the_greeting_is_closed() -> None:
    async with node(handshake_s=0.1) as bench:
        wire = await bench.dial()
        assert await asyncio.wait_for(wire.closed(), 5)
        assert any("nothing was said" in line for line in bench.lines)


async def test_a_frame_that_drips_is_closed() -> None:
    async with node(handshake_s=0.2) as bench:
        wire = await bench.dial()
        await settled(wire)
        wire.writer.write(b"\xce\x00")
        drip = asyncio.ensure_future(_drip(wire))
        assert await asyncio.wait_for(wire.closed(), 5)
        drip.cancel()
        assert any("rest of a frame" in line for line in bench.lines)


async def _drip(wire: Wire) -> None:
    for byte in b"\x00\x00\xff" + b"\x80" * 100:
        wire.writer.write(bytes((byte,)))
        await asyncio.sleep(0.05)


async def test_idle_connections_are_closed_but_waiting_ones_are_not() -> None:
    async with node(idle_s=0.15) as bench:
        idle, waiting = await bench.dial(), await bench.dial()
        await settled(idle)
        waiting.send_call("queue.tube.fifo:take", 1.0)
        assert await asyncio.wait_for(idle.closed(), 5)
        assert (await waiting.receive())[2] == {0x30: []}


async def test_connections_beyond_the_limit_are_refused() -> None:
    async with node(connections_max=2) as bench:
        first, second = await bench.dial(), await bench.dial()
        await settled(first)
        await settled(second)
        refused = await bench.dial(greeted=False)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await refused.reader.readexactly(128)
        assert sum("connection limit" in line for line in bench.lines) == 1
        first.close()
        await asyncio.sleep(0.05)
        assert await (await bench.dial()).ping()


async def test_a_client_that_never_reads_is_closed_and_harms_nobody() -> None:
    limits = ClientBounds(output_bytes_max=4 << 20)
    async with node(limits) as bench:
        writer, greedy = await bench.dial(), await bench.dial()
        assert (await writer.call("queue.tube.fifo:put", "x" * 500_000))[0][0] == 0
        for _ in range(200):
            greedy.send_call("queue.tube.fifo:peek", 0)
        for _ in range(500):
            await asyncio.sleep(0.01)
            if len(bench.core.connections) == 1:
                break
        assert len(bench.core.connections) == 1
        assert any("output limit" in line for line in bench.lines)
        assert await writer.ping()


async def test_waiting_takes_are_answered_at_shutdown() -> None:
    async with node() as bench:
        wire = await bench.dial()
        wire.send(0x4A, {0x57: "box.shutdown"})
        assert (await wire.receive())[2] == {0x57: "box.shutdown"}
        wire.send(0x4A, {0x57: "box.shutdown"})
        sync = wire.send_call("queue.tube.fifo:take")
        await asyncio.sleep(0.05)
        await bench.shell.drain(1.0)
        event = await wire.receive()
        assert event[2] == {0x57: "box.shutdown", 0x58: True}
        assert await wire.receive() == (sync, 0, {0x30: []})
        assert await wire.closed()
