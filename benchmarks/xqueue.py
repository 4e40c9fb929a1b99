"""xqueue's own benchmark: producers of empty tasks and 32 workers that acknowledge, in process.

Here: the life of a task (put, take, ack) with ids of time64, logged. Must not be here: sockets.
As in the original, producers and workers take turns within the process; what one turn of everybody
changed is one frame, written to a file as in `wal.mode: write`, and nobody acts on what is not
written. beanstalkd's puts stand beside it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks import beanstalk, xqueue_start
from benchmarks.table import Row, at_least, rate
from benchmarks.target import Effort, Say
from tandemq.model.record import encode_frame
from tandemq_server.engine import admin
from tandemq_server.engine.clients import EngineClient
from tandemq_server.engine.engine import Engine
from tandemq_server.facades.registered import KNOWN
from tandemq_server.facades.xqueue.tube import RecordTube
from tandemq_server.node.loop.recovered import settle_memory

PRODUCERS = (1, 4, 8, 12, 24)
WORKERS = 32
WAIT_S = 60.0
TERM_ID = bytes(16)
#: What the original reached of the yardstick's puts, on a quiet machine of two cores.
#: 8 lies between its neighbours; beyond 12 the original does not get faster.
RATIOS = {1: 0.20, 4: 0.59, 8: 0.64, 12: 0.69, 24: 0.69}
ORIGINAL = {1: "16,000/s", 4: "47,000/s", 12: "55,000/s"}
OPTIONS: dict[str, Any] = {
    "format": [
        {"name": "id", "type": "unsigned"},
        {"name": "status", "type": "string"},
        {"name": "payload", "type": "any", "is_nullable": True},
    ],
    "fields": {"status": "status"},
    "features": {"id": "time64"},
}


class Worker(EngineClient):
    """What it was given waits to be acknowledged when its turn comes."""

    __slots__ = ("got",)

    def __init__(self, client_id: int, got: deque[tuple[Worker, int]]) -> None:
        super().__init__(client_id)
        self.got = got

    def deliver(self, ticket: object, outcome: Any) -> None:
        assert isinstance(outcome, tuple), outcome
        self.got.append((self, outcome[0]["id"]))


def lives(producers: int, count: int, log: BinaryIO) -> dict[str, float]:
    """Lives of tasks per second, of processor time and of the clock on the wall."""
    engine = Engine(KNOWN, lambda: uuid.uuid4().bytes, _complain)
    engine.now = time.time_ns() // 1_000
    engine.start()
    tube = admin.create_tube(engine, "bench", "xqueue", OPTIONS)
    assert isinstance(tube, RecordTube)
    got: deque[tuple[Worker, int]] = deque()
    for number in range(WORKERS):
        tube.take_record(Worker(100 + number, got), 0, WAIT_S)
    clients = [Worker(number, got) for number in range(producers)]
    put, ack, take = tube.put_record, tube.ack_record, tube.take_record
    turns = count // producers
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(turns):
        engine.now = max(engine.now, time.time_ns() // 1_000)
        # What the last turn gave is in the file; only then somebody acts on it.
        for _ in range(len(got)):
            worker, key = got.popleft()
            ack(worker, key)
            take(worker, 0, WAIT_S)
        for client in clients:
            put(client, 0, {})
            engine.wake()
        _write(engine, log)
    while got:
        worker, key = got.popleft()
        ack(worker, key)
    _write(engine, log)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert tube.done == turns * producers, (tube.done, turns)
    assert not tube.space.rows
    return {"per_cpu_second": tube.done / cpu, "per_second": tube.done / wall}


def _write(engine: Engine, log: BinaryIO) -> None:
    records = engine.take_records()
    if records:
        first = engine.lsn - len(records) + 1
        log.write(encode_frame(records, 1, TERM_ID, first, 0))


def _complain(text: str, _error: BaseException | None = None) -> None:
    raise AssertionError(text)


def _apart(producers: int, count: int) -> dict[str, float]:
    """One measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.xqueue", str(producers), str(count)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"xqueue, {producers} producers: {done.stderr.strip()[-2_000:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


async def _yardstick(directory: Path, effort: Effort, say: Say) -> float:
    """Puts per second of beanstalkd with its binlog on, empty tasks."""
    async with beanstalk.Beanstalkd(beanstalk.find(say), directory / "beanstalkd") as server:
        connections = [await server.connect() for _ in range(effort.connections)]
        started = time.perf_counter()
        done = await beanstalk.put(connections, effort.shape.in_flight, 1, effort.count)
        seconds = time.perf_counter() - started
        for connection in connections:
            connection.close()
    return done / seconds


async def run(directory: Path, effort: Effort, say: Say) -> tuple[list[Row], dict[str, object]]:
    """Every number of producers beside the yardstick of the same minute."""
    rows: list[Row] = []
    raw: dict[str, object] = {}
    for producers in PRODUCERS:
        say(f"xqueue, {producers} producers")
        ours, theirs = [], []
        for number in range(effort.runs):
            place = directory / f"xqueue-{producers}-{number}"
            theirs.append(await _yardstick(place, effort, say))
            ours.append(_apart(producers, effort.count)["per_second"])
        figure, yardstick = statistics.median(ours), statistics.median(theirs)
        raw[f"{producers} producers"] = {"lives": ours, "beanstalkd puts": theirs}
        goal = RATIOS[producers] * (1.5 if producers == 1 else 1.0)
        beside = f"beanstalkd puts {rate(yardstick)}"
        if producers in ORIGINAL:
            beside += f", original {ORIGINAL[producers]}"
        row = Row("xqueue, lives of a task", f"{producers} producers", rate(figure))
        row.yardstick = beside
        row.goals.append(at_least(figure / yardstick, goal))
        rows.append(row)
    for row, found in (
        xqueue_start.at_start(effort, say),
        await xqueue_start.on_time(directory, effort, say),
    ):
        rows.append(row)
        raw[row.name] = found
    return rows, raw


if __name__ == "__main__":
    settle_memory()
    with tempfile.TemporaryFile(buffering=0) as file:
        outcome = lives(int(sys.argv[1]), int(sys.argv[2]), file)  # type: ignore[arg-type]
    sys.stdout.write(json.dumps(outcome) + "\n")
