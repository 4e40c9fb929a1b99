"""The seed's two tables of its utube benchmark, in process against our engine, no socket, no log.

Here: many sub-queues with one task each, and ten busy sub-queues of growing depth.
Must not be here: anything over the wire. As in the seed, time is the CPU time of the process and
tubes are temporary. Each measurement runs in a process of its own (`python -m benchmarks.inprocess
busy utube 150000`), so that none inherits the memory of another.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.table import Row, at_most
from benchmarks.target import Effort, Say
from tandemq_server.drivers import BUILT_IN
from tandemq_server.engine import admin
from tandemq_server.engine.clients import EngineClient
from tandemq_server.engine.engine import Engine
from tandemq_server.engine.tube import EngineTube

KINDS = ("utube", "utubettl")
MANY_SUB_QUEUES = 30_000
BUSY_SUB_QUEUES = 10
DEPTHS = (1_000, 10_000, 50_000, 150_000)
TASKS_A_SIZE = 500_000
"""Small sizes are repeated, in fresh tubes, until about this many tasks were measured."""

REPEATS_MAX = 15
GROWTH_MAX = 1.3
TAKE_ACK_US_MAX = 12.0
DATA = b"\xd9\x64" + b"x" * 100
SEED_MS = {"utube": 1_600, "utubettl": 1_700}
"""The seed's own figures for taking and acknowledging the 30,000, in milliseconds."""


class Caller(EngineClient):
    """A consumer that never waits, so nothing is ever delivered to it later."""

    __slots__ = ()

    def deliver(self, ticket: object, outcome: object) -> None:
        raise AssertionError(f"nobody waits here, yet {outcome} came")


class Bench:
    """An engine that serves. Nobody waits here, so nobody has to be woken after a call."""

    def __init__(self) -> None:
        self.engine = Engine(BUILT_IN, lambda: uuid.uuid4().bytes, _complain)
        self.engine.now = time.time_ns() // 1_000
        self.engine.start()

    def tube(self, kind: str) -> EngineTube:
        """A fresh temporary tube of this driver."""
        name = f"t{len(self.engine.tubes)}"
        return admin.create_tube(self.engine, name, kind, {"temporary": True})

    def fill(self, tube: EngineTube, client: EngineClient, sub_queue: str, count: int) -> None:
        """`count` tasks of 100 bytes into one sub-queue."""
        put, options = tube.put, {"utube": sub_queue}
        for _ in range(count):
            put(client, 0, DATA, options)
        self.engine.now += count


def _complain(text: str) -> None:
    raise AssertionError(text)


def many(kind: str) -> dict[str, float]:
    """30,000 sub-queues, one task each: microseconds of one put and of one take+ack.

    All consumers share one session, as the seed's fibers do.
    """
    bench = Bench()
    tube = bench.tube(kind)
    client = Caller(0)
    take, ack = _calls(tube)
    started = time.process_time()
    for number in range(MANY_SUB_QUEUES):
        bench.fill(tube, client, str(number), 1)
    filled = time.process_time()
    for _ in range(MANY_SUB_QUEUES):
        ack(client, take(client, 0, 0)[0])
    ended = time.process_time()
    bench.engine.take_records()
    assert tube.done == MANY_SUB_QUEUES, tube.done
    unit = 1e6 / MANY_SUB_QUEUES
    return {"put_us": (filled - started) * unit, "take_ack_us": (ended - filled) * unit}


def busy(kind: str, depth: int) -> dict[str, float]:
    """Ten sub-queues of `depth` tasks, ten consumers that take, let the others run, and ack."""
    total = BUSY_SUB_QUEUES * depth
    repeats = max(1, min(REPEATS_MAX, TASKS_A_SIZE // total))
    puts, takes = [], []
    bench = Bench()
    for _ in range(repeats):
        tube = bench.tube(kind)
        started = time.process_time()
        producer = Caller(0)
        for number in range(BUSY_SUB_QUEUES):
            bench.fill(tube, producer, str(number), depth)
        filled = time.process_time()
        _consume(bench, tube, depth)
        takes.append(time.process_time() - filled)
        puts.append(filled - started)
        assert tube.done == total, (tube.done, total)
        bench.engine.take_records()
        admin.drop_tube(bench.engine, tube)
    unit = 1e6 / total
    return {
        "put_us": statistics.median(puts) * unit,
        "take_ack_us": statistics.median(takes) * unit,
    }


def _consume(bench: Bench, tube: EngineTube, depth: int) -> None:
    """Every consumer in turn acknowledges what it holds and takes again, `depth` times each."""
    take, ack = _calls(tube)
    consumers = [Caller(number + 1) for number in range(BUSY_SUB_QUEUES)]
    held = [take(consumer, 0, 0)[0] for consumer in consumers]
    for _ in range(depth - 1):
        bench.engine.now += BUSY_SUB_QUEUES
        for number, consumer in enumerate(consumers):
            ack(consumer, held[number])
            held[number] = take(consumer, 0, 0)[0]
    for number, consumer in enumerate(consumers):
        ack(consumer, held[number])


def _calls(tube: EngineTube) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two hot operations, bound once as the node's call table has them."""
    return tube.take, tube.ack


def _apart(*words: str) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.inprocess", *words],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()[-2_000:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _median(runs: int, *words: str) -> dict[str, float]:
    several = [_apart(*words) for _ in range(runs)]
    return {key: statistics.median(one[key] for one in several) for key in several[0]}


def run(effort: Effort, say: Say) -> tuple[list[Row], dict[str, object]]:
    """Both tables for both drivers; one run each, the medians of `runs` when full."""
    rows: list[Row] = []
    raw: dict[str, object] = {}
    runs = effort.runs if effort.full else 1
    for kind in KINDS:
        say(f"in process, {kind}: {MANY_SUB_QUEUES:,} sub-queues")
        figure = raw[f"many {kind}"] = _median(max(runs, 3), "many", kind)
        seed = f"seed {SEED_MS[kind] * 1_000 / MANY_SUB_QUEUES:.0f} us"
        rows.append(_row(kind, f"{MANY_SUB_QUEUES:,} sub-queues x 1", figure, seed))
        first = 0.0
        for depth in DEPTHS:
            say(f"in process, {kind}: {BUSY_SUB_QUEUES} sub-queues x {depth:,}")
            figure = raw[f"busy {kind} {depth}"] = _median(runs, "busy", kind, str(depth))
            first = first or figure["take_ack_us"]
            row = _row(kind, f"{BUSY_SUB_QUEUES} sub-queues x {depth:,}", figure, "")
            growth = figure["take_ack_us"] / first
            if depth == DEPTHS[-1]:
                row.goals.append(at_most(growth, GROWTH_MAX, "x of 1,000"))
            elif depth != DEPTHS[0]:
                row.yardstick = f"{growth:.2f}x of 1,000"
            rows.append(row)
    return rows, raw


def _row(kind: str, name: str, figure: dict[str, float], yardstick: str) -> Row:
    take_ack = figure["take_ack_us"]
    return Row(
        f"in process, {kind}, us per take+ack",
        name,
        f"{take_ack:.2f} us (put {figure['put_us']:.2f})",
        yardstick=yardstick,
        goals=[at_most(take_ack, TAKE_ACK_US_MAX)],
    )


if __name__ == "__main__":
    gc.collect()
    what, *rest = sys.argv[1:]
    outcome = many(rest[0]) if what == "many" else busy(rest[0], int(rest[1]))
    sys.stdout.write(json.dumps(outcome) + "\n")
