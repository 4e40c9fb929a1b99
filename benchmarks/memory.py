"""A million waiting tasks: bytes of memory each, restart time; and what waiting consumers cost.

Here: fills, restarts, waiters, and their rows. Must not be here: rates of the drivers (wire.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

from asynctnt.exceptions import TarantoolError

from benchmarks import load
from benchmarks.measure import median
from benchmarks.table import Row, at_most, rate
from benchmarks.target import Effort, Say, Target, tandem
from demo.crowd import connect, disconnect

MILLION = 1_000_000
IN_LOG_ONLY = 100_000
"""Tasks put after the snapshot, so that the restart reads both snapshot and log."""

BYTES_PER_TASK_MAX = 600
RESTART_SECONDS_MAX = 10.0
SNAPSHOT_PAUSE_MS_MAX = 50.0
WAITERS = 10_000
WAITER_CONNECTIONS = 20
WAIT_SECONDS = 600
WAITERS_SLOW_DOWN_MAX = 1.1

Raw = dict[str, object]


async def run(directory: Path, effort: Effort, say: Say) -> tuple[list[Row], Raw]:
    """Measure memory and restart (fifo; every driver when full), then waiting consumers."""
    rows: list[Row] = []
    raw: Raw = {}
    for driver in ("fifo", "fifottl", "utube", "utubettl") if effort.full else ("fifo",):
        say(f"memory, a million waiting in a {driver}")
        async with tandem(directory / f"memory-{driver}", effort, tubes=(driver,)) as node:
            rows += await _million(node, driver, raw)
    say(f"memory, {WAITERS:,} waiting consumers")
    async with tandem(directory / "waiters", effort, tubes=("utube",)) as node:
        rows += await _waiting(node, raw)
    return rows, raw


async def _million(node: Target, driver: str, raw: Raw) -> list[Row]:
    await node.put(driver, 1_000)
    await node.take_ack(driver, 1_000)
    empty = node.node.resident_bytes()
    await node.put_batches(driver, MILLION - IN_LOG_ONLY)
    filled = node.node.resident_bytes()
    snapshot_seconds, pause = await _snapshot(node, driver)
    await node.put_batches(driver, IN_LOG_ONLY)
    after = node.node.resident_bytes()
    expected = await node.tasks(driver)
    await node.node.kill()
    restart = await node.node.start()
    reloaded = node.node.resident_bytes()
    again = await connect("127.0.0.1", node.node.port, 1)
    found = await Target(node.node, node.effort, again).tasks(driver)
    await disconnect(again)
    if found != expected:
        raise RuntimeError(f"{expected:,} tasks before the restart of {driver}, {found:,} after it")
    each = (filled - empty) / (MILLION - IN_LOG_ONLY)
    raw[f"memory {driver}"] = {
        "empty_bytes": empty,
        "filled_bytes": filled,
        "after_snapshot_bytes": after,
        "reloaded_bytes": reloaded,
        "restart_seconds": restart,
        "snapshot_seconds": snapshot_seconds,
        "longest_put_ms": pause,
        "tasks": expected,
    }
    section = f"a million waiting, {driver}"
    later = f"{(after - empty) / expected:.0f} B after a snapshot"
    bound = [at_most(each, BYTES_PER_TASK_MAX, " B")]
    rows = [Row(section, "memory a task", f"{each:.0f} B", yardstick=later, goals=bound)]
    if snapshot_seconds is None:
        how = "log alone: no snapshot was taken"
    else:
        how = f"snapshot + {IN_LOG_ONLY:,} in the log"
        longest = [at_most(pause, SNAPSHOT_PAUSE_MS_MAX, " ms")]
        text = f"longest put {pause:.1f} ms"
        beside = f"snapshot took {snapshot_seconds:.1f} s"
        rows.append(Row(section, "pause by snapshot", text, yardstick=beside, goals=longest))
    limit = [at_most(restart, RESTART_SECONDS_MAX, " s")]
    rows.append(Row(section, "restart", f"{restart:.2f} s", yardstick=how, goals=limit))
    return rows


async def _snapshot(node: Target, tube: str) -> tuple[float | None, float]:
    """Have a snapshot written while one client puts and takes; its seconds and the longest ms.

    None when the node offers no call for it.
    """
    longest, finished = 0.0, False

    async def prober(connection: load.Connections) -> None:
        nonlocal longest
        while not finished:
            started = time.perf_counter()
            await connection[0].call(f"queue.tube.{tube}:put", ["x" * 100, {}])
            longest = max(longest, time.perf_counter() - started)
            await asyncio.sleep(0.001)

    started = time.perf_counter()
    seconds: float | None = None
    async with asyncio.TaskGroup() as group:
        group.create_task(prober(node.connections[1:]))
        try:
            await node.connections[0].call("box.snapshot", [])
            seconds = time.perf_counter() - started
        except TarantoolError:
            seconds = None
        finally:
            finished = True
    return seconds, longest * 1_000


async def _waiting(node: Target, raw: Raw) -> list[Row]:
    """Puts into a busy sub-queue, which wake nobody, without and with consumers waiting."""
    await node.connections[0].call("queue.tube.utube:put", ["x", {"utube": "busy"}])
    await node.connections[0].call("queue.tube.utube:take", [1])
    count, shape = node.effort.count, node.effort.shape

    def put() -> Awaitable[int]:
        return load.put(node.connections, shape, "utube", count, lambda _: "busy")

    await put()
    for _ in range(node.effort.runs):
        await node.measure("without", put())
        connections = await connect("127.0.0.1", node.node.port, WAITER_CONNECTIONS)
        waiters = [
            asyncio.ensure_future(
                connections[n % WAITER_CONNECTIONS].call("queue.tube.utube:take", [WAIT_SECONDS])
            )
            for n in range(WAITERS)
        ]
        await node.connections[0].ping()
        await asyncio.sleep(0.5)
        early = sum(waiter.done() for waiter in waiters)
        if early:
            raise RuntimeError(f"{early} of {WAITERS} consumers did not wait")
        await node.measure("with", put())
        await disconnect(connections)
        await asyncio.gather(*waiters, return_exceptions=True)
    without, beside = node.median("without"), median(node.taken["with"])
    slow_down = beside.server_us / without.server_us
    raw["waiters"] = {
        name: [sample.server_us for sample in several] for name, several in node.taken.items()
    }
    return [
        Row(
            f"{WAITERS:,} waiting consumers",
            "put",
            rate(beside.rate),
            beside.server_us,
            beside.client_us,
            f"{rate(without.rate)}, {without.server_us:.1f} us without",
            [at_most(slow_down, WAITERS_SLOW_DOWN_MAX, "x server us")],
        )
    ]
