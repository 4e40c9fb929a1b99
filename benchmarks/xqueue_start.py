"""xqueue's other promises: statistics at a start, and deadlines that fire on time under load.

Here: loading a million records (`--full`: four) with and without what statistics need, and how late
delays and ttrs are while other connections keep the node busy. Must not be here: rates of calls.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

import uvloop

from benchmarks import load
from benchmarks.table import Row, at_most
from benchmarks.target import Effort, Say, tandem
from demo.crowd import connect, disconnect
from tandemq_server.facades.xqueue.arguments import statistics
from tandemq_server.facades.xqueue.driver import XQueue
from tandemq_server.node.loop.recovered import settle_memory
from tandemq_server.spaces.record_index import RecordIndex
from tandemq_server.spaces.space import Row as Row_
from tandemq_server.spaces.store import Store

RECORDS, RECORDS_FULL = 1_000_000, 4_000_000
TASKS, LANES, FIRST_S, STEP_S = 400, 64, 1.0, 0.005
LATE_MS, READY_MS = 20.0, 1.0
FORMAT = [
    {"name": "id", "type": "unsigned"},
    {"name": "status", "type": "string"},
    {"name": "runat", "type": "number"},
    {"name": "tube", "type": "string"},
]
FIELDS = {"status": "status", "runat": "runat", "tube": "tube"}
FEATURES = {"id": "auto_increment", "delayed": True, "ttr": True}
OPTIONS: dict[str, Any] = {"format": FORMAT, "fields": FIELDS, "features": FEATURES}


class Uncounted(RecordIndex):
    """The order of takes alone."""

    __slots__ = ()

    def added(self, row: Row_) -> None:
        self._enter(row)


def recover(count: int, counted: bool) -> dict[str, float]:
    """Seconds to load records into a space, and until their statistics are there."""
    settle_memory()
    options = XQueue.check_options({**OPTIONS, "tube_stats": ["tube 1", "tube 2"]})
    space = XQueue.create_space(600, "q", options, False)
    if not counted:
        index = space.indexes[0]
        assert isinstance(index, RecordIndex)
        space.indexes = (Uncounted(index.pri, index.tube, index.tracked), *space.indexes[1:])
    Store(lambda *_what: space).add(space)
    states = ("r", "r", "~", "!", "d")
    began = time.perf_counter()
    for key in range(count):
        space.put((key, states[key % 5], 0, "", 0, f"tube {key % 4}"))
    loaded = time.perf_counter()
    index = space.indexes[0]
    assert isinstance(index, RecordIndex)
    found = statistics(index, False)
    ready = time.perf_counter()
    assert sum(found["counts"].values()) == count
    if counted:
        tube = found["tube"]["tube 1"]["counts"]
        assert sum(tube.values()) == len(range(1, count, 4)), tube
    return {"load": loaded - began, "statistics": ready - loaded}


def _apart(count: int, counted: bool) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.xqueue_start", str(count), str(int(counted))]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parent.parent, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"xqueue, {count} records: {done.stderr.strip()[-2_000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def at_start(effort: Effort, say: Say) -> tuple[Row, dict[str, object]]:
    """Loading with statistics beside loading without; the quickest run of each."""
    count = RECORDS_FULL if effort.full else RECORDS
    say(f"xqueue, statistics of {count:,} records")
    runs = [(_apart(count, True), _apart(count, False)) for _ in range(effort.runs)]
    counted = min(run[0]["load"] for run in runs)
    bare = min(run[1]["load"] for run in runs)
    ready_ms = max(run[0]["statistics"] for run in runs) * 1e3
    row = Row(f"xqueue, {count:,} records", "statistics at a start", f"{ready_ms:.3f} ms")
    row.yardstick = f"loading {counted:.2f} s, without counting {bare:.2f} s"
    row.goals.append(at_most(ready_ms, READY_MS, " ms"))
    return row, {"records": count, "runs": runs}


class Punctual:
    """Tasks that become ready by delay, are taken, come back by their ttr, and are acknowledged."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.due: dict[int, float] = {}
        self.late: list[float] = []
        self.left = TASKS
        self.taken: set[int] = set()

    async def call(self, name: str, *args: Any) -> Any:
        reply = await self.connection.call(f"box.space.late:{name}", list(args))
        return reply.body[0] if reply.body else None

    async def put(self, number: int) -> None:
        delay = FIRST_S + number * STEP_S
        task = await self.call("put", {"tube": "a"}, {"delay": delay})
        self.due[task["id"]] = task["runat"]

    async def lane(self) -> None:
        while self.left:
            task = await self.call("take", 0.5, {"ttr": FIRST_S})
            if task is None:
                continue
            key = task["id"]
            self.late.append(time.time() - self.due[key])
            if key in self.taken:
                await self.call("ack", key)
                self.left -= 1
                continue
            self.taken.add(key)
            self.due[key] = task["runat"]

    async def run(self) -> None:
        await asyncio.gather(*[self.put(number) for number in range(TASKS)])
        await asyncio.gather(*[self.lane() for _ in range(LANES)])


async def busy(port: int) -> int:
    """Other people's puts and takes, as many as the node manages, until the input ends."""
    shape, count = load.Shape(in_flight=16), 0
    connections = await connect("127.0.0.1", port, 4)
    ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    while not ended.done():
        count += await load.put(connections, shape, "fifo", 2_000)
        count += await load.take_ack(connections, shape, "fifo", 2_000)
    await disconnect(connections)
    return count


async def on_time(directory: Path, effort: Effort, say: Say) -> tuple[Row, dict[str, object]]:
    """How late tasks reach a consumer that waits, from the moment they were due."""
    say("xqueue, delays and deadlines under load")
    async with tandem(directory / "xqueue-late", effort, tubes=("fifo",)) as target:
        (own,) = await connect("127.0.0.1", target.node.port, 1)
        await own.call("xqueue.upgrade", ["late", OPTIONS])
        # A process of its own: what the load keeps waiting in its loop is not the node's delay.
        other = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.xqueue_start", "busy", str(target.node.port)),
            cwd=Path(__file__).parent.parent,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        punctual = Punctual(own)
        began = time.perf_counter()
        await punctual.run()
        seconds = time.perf_counter() - began
        answer, _ = await other.communicate(b"")
        calls = int(answer) / seconds
        await disconnect([own])
    late = sorted(moment * 1e3 for moment in punctual.late)
    assert len(late) == 2 * TASKS, len(late)
    most = quantiles(late, n=100)[98]
    row = Row("xqueue, deadlines", f"{TASKS} delays, {TASKS} ttrs", f"99 % {most:.1f} ms")
    row.yardstick = f"longest {late[-1]:.1f} ms, beside {calls:,.0f} other calls/s"
    row.goals += [at_most(most, LATE_MS, " ms"), at_most(-late[0], 0.0, " ms early")]
    return row, {"late ms": late}


if __name__ == "__main__":
    if sys.argv[1] == "busy":
        sys.stdout.write(f"{uvloop.run(busy(int(sys.argv[2])))}\n")
    else:
        sys.stdout.write(json.dumps(recover(int(sys.argv[1]), sys.argv[2] == "1")) + "\n")
