"""Between a change and its frame in the log any error is fatal: nothing is acknowledged after it.

Out of memory is injected at each step, in a node's own turn and on a replica's road.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tandemq.model.errors import StorageError
from tandemq_server.engine.engine import Engine
from tandemq_server.node.cluster.follow import UpstreamLink
from tandemq_server.node.cluster.replica import Replica
from tandemq_server.node.core.turn import Turn
from tandemq_server.node.loop.wal_writer import WalWriter
from tandemq_server.replication.decisions import Append, DropSnapshot
from tests.node.harness import Bench, node

pytestmark = pytest.mark.asyncio


class Log:
    """A log that keeps what it was given, and runs out of memory when told to."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.exhausted = False

    def append(self, frame: bytes, *_rest: Any) -> None:
        if self.exhausted:
            raise MemoryError
        self.frames.append(frame)


def exhausted(*_args: Any, **_options: Any) -> Any:
    raise MemoryError


def with_log(bench: Bench) -> Log:
    log = Log()
    wal = bench.shell.wal
    wal.log, wal.mode = log, "write"  # type: ignore[assignment]
    return log


Break = Callable[[Bench, Log, pytest.MonkeyPatch], None]


def _break_encoding(_bench: Bench, _log: Log, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tandemq_server.node.core.core.encode_frames", exhausted)


def _break_taking(bench: Bench, _log: Log, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bench.core.engine, "take_records", exhausted)


def _break_flush(bench: Bench, _log: Log, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bench.core, "flush", exhausted)


def _break_append(_bench: Bench, log: Log, _patch: pytest.MonkeyPatch) -> None:
    log.exhausted = True


def _break_listener(bench: Bench, _log: Log, _patch: pytest.MonkeyPatch) -> None:
    bench.shell.wal.listeners.append(exhausted)


def _break_measuring(bench: Bench, _log: Log, patch: pytest.MonkeyPatch) -> None:
    bench.shell.turns.began = 1.0
    patch.setattr(bench.shell.turns, "hand_over", exhausted)


@pytest.mark.parametrize(
    "breaks",
    [
        _break_taking,
        _break_encoding,
        _break_flush,
        _break_append,
        _break_listener,
        _break_measuring,
    ],
)
async def test_a_turn_that_breaks_off_acknowledges_nothing_ever_again(
    breaks: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[StorageError] = []
    async with node() as bench:
        log = with_log(bench)
        bench.shell.wal.failed = failures.append
        wire = await bench.dial()
        assert (await wire.call("queue.tube.fifo:put", b"one"))[0][0] == 0
        written = len(log.frames)
        with monkeypatch.context() as patch:
            breaks(bench, log, patch)
            wire.send_call("queue.tube.fifo:put", b"two")
            for _ in range(200):
                if failures:
                    break
                await asyncio.sleep(0.005)
        assert "MemoryError" in failures[0].reason
        assert bench.shell.wal.broken
        log.exhausted = False
        # All works again, and still nobody is told of what is nowhere but in memory.
        wire.send_call("queue.tube.fifo:put", b"three")
        wire.send_call("queue.tube.fifo:peek", 1)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wire.receive(), 0.1)
        assert len(log.frames) <= written + (breaks is _break_listener)


class NoRoom(list[Any]):
    """Records that cannot be added to."""

    append = exhausted


async def test_a_commit_without_memory_is_taken_back_whole() -> None:
    async with node() as bench:
        wire = await bench.dial()
        engine = bench.core.engine
        await wire.call("queue.tube.fifo:put", b"one")
        lsn = engine.lsn
        engine.records = NoRoom()
        code, text = await wire.call("queue.tube.fifo:put", b"two")
        assert (code, "MemoryError" in text) == (32, True)
        engine.records = []
        assert engine.lsn == lsn
        assert list(engine.tubes["fifo"].space.rows) == [0]
        assert (await wire.call("queue.tube.fifo:put", b"three"))[0][0] == 1
        assert engine.lsn == lsn + 1


async def test_half_a_roll_back_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[StorageError] = []
    async with node() as bench:
        log = with_log(bench)
        bench.shell.wal.failed = failures.append
        wire = await bench.dial()
        engine = bench.core.engine
        with monkeypatch.context() as patch:
            patch.setattr("tandemq_server.spaces.space.Space.restore", exhausted)
            engine.records = NoRoom()
            wire.send_call("queue.tube.fifo:put", b"one")
            await asyncio.sleep(0.05)
            engine.records = []
        assert engine.store.torn
        other = await bench.dial()
        other.send_call("queue.tube.utube:put", b"two")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(other.receive(), 0.1)
        assert "could not be taken back" in failures[0].reason
        assert log.frames == []


# -- a replica -------------------------------------------------------------------------------------


class Peering:
    """As much of the real one as a replica asks for here."""

    def __init__(self, wal: WalWriter) -> None:
        self.wal = wal
        self.core = self.storage = None
        self.say = print


def a_replica() -> tuple[Replica, list[StorageError]]:
    failures: list[StorageError] = []
    wal = WalWriter(None, "none", lambda _turn: None, failures.append)
    replica = object.__new__(Replica)
    replica.peering = Peering(wal)  # type: ignore[assignment]
    replica.wal = wal
    replica._busy = None
    replica._fresh = False
    return replica, failures


async def test_records_of_an_upstream_that_cannot_be_applied_end_the_node() -> None:
    replica, failures = a_replica()
    replica._append = exhausted  # type: ignore[method-assign]
    replica.append(None, Append(b"", None, 1, [], None, False))  # type: ignore[arg-type]
    assert "MemoryError" in failures[0].reason
    assert replica.wal.broken


async def test_a_step_of_an_upstream_that_breaks_off_ends_the_node() -> None:
    replica, failures = a_replica()
    replica._snapshot_part = exhausted  # type: ignore[method-assign]
    replica.carry_out(None, DropSnapshot("x", "y"))  # type: ignore[arg-type]
    assert "DropSnapshot" in failures[0].reason
    assert replica.wal.broken


async def test_a_message_of_an_upstream_that_breaks_off_ends_the_node() -> None:
    replica, failures = a_replica()
    link = object.__new__(UpstreamLink)
    link.peering, link.ended, link.address = replica.peering, False, "there"
    link.decoder = exhausted  # type: ignore[assignment]
    link.applier = type("Applier", (), {"upstream": None})()
    link.receive(b"x")
    assert "following there failed" in failures[0].reason


async def test_several_frames_of_a_turn_are_written_and_told_of_one_by_one() -> None:
    log, told, released = Log(), [], []
    wal = WalWriter(log, "write", released.append, pytest.fail)  # type: ignore[arg-type]
    wal.listeners.append(lambda frame, last_lsn: told.append((frame, last_lsn)))
    turn = Turn(b"c", 6, 6, before=[(b"a", 1, 2), (b"b", 3, 5)])
    wal.submit(turn, 7)
    assert log.frames == [b"a", b"b", b"c"]
    assert told == [(b"a", 2), (b"b", 5), (b"c", 6)]
    assert (released, wal.written_lsn) == ([turn], 6)


async def test_the_second_of_several_frames_fails() -> None:
    log, released, failures = Log(), [], []
    wal = WalWriter(log, "write", released.append, failures.append)  # type: ignore[arg-type]
    wal.listeners.append(lambda _frame, _lsn: setattr(log, "exhausted", True))
    wal.submit(Turn(b"c", 6, 6, before=[(b"a", 1, 2), (b"b", 3, 5)]), 7)
    assert (log.frames, released, wal.broken, len(failures)) == ([b"a"], [], True, 1)


async def test_a_turn_of_many_large_puts_is_cut_and_comes_back() -> None:
    async with node() as bench:
        log = with_log(bench)
        wires = [await bench.dial() for _ in range(5)]
        for wire in wires:
            wire.send_call("queue.tube.fifo:put_many", [[b"x" * 900_000] for _ in range(3)])
        for wire in wires:
            _, code, _ = await wire.receive()
            assert code == 0
        assert max(len(frame) for frame in log.frames) < 5 << 20
        assert isinstance(bench.core.engine, Engine)
