"""Kill -9 in a loop under load: what was acknowledged is there after every restart, once.

100 cycles here, in two parts; `make crash` runs 1,000. The judge sees only what clients were told.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import asynctnt
import pytest
from asynctnt.exceptions import TarantoolNotConnectedError

from demo.node_process import NodeProcess
from tests.ports import free_port

CYCLES = int(os.environ.get("KILL9_CYCLES", "100"))
#: Independent parts, so that two processes can share the cycles.
PARTS = 2
SEED = int(os.environ.get("TEST_SEED", "20250607"))
TUBES = ("crash_fifo", "crash_fifottl", "crash_utube")


def started(directory: Path, port: int, mode: str) -> NodeProcess:
    """One life of the node."""
    words = ["--listen", f"127.0.0.1:{port}", "--data-dir", str(directory)]
    words += ["--wal-mode", mode, "--guest", "all"]
    return NodeProcess(directory.with_suffix(".log"), *words).start()


class History:
    """What producers and workers were told: done, or unknown because the reply never came.

    lines: the same for the outside judge, as tests/judge/FORMAT.md says.
    """

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.next = 0
        self.put: set[int] = set()
        self.put_unknown: set[int] = set()
        self.acked: set[int] = set()
        self.ack_unknown: set[int] = set()

    def values(self, count: int) -> list[int]:
        self.next += count
        return list(range(self.next - count, self.next))

    def event(self, event: str, **more: Any) -> None:
        self.lines.append({"what": "event", "event": event, **more})

    @contextlib.contextmanager
    def told(self, kind: str, session: str, tube: str, *values: int, **more: Any) -> Iterator[list]:
        """A call under way. Ids put into the list, one for each value, are its answer."""
        began, ids = microseconds(), []
        line = {"what": "op", "kind": kind, "client": session, "tube": tube, "began_us": began}
        line |= {"type": tube.removeprefix("crash_"), **more}
        outcome: dict[str, Any] = {"outcome": "unknown"}
        try:
            yield ids
            outcome = {"outcome": "ok", "ended_us": microseconds()}
        finally:
            # A take without an answer, or without a task, has no value yet.
            for value, task in zip_longest(values or (None,), ids):
                one = {"task": task, "payload": value} | outcome
                if kind == "put" and tube == "crash_utube":
                    one["subqueue"] = str((value or 0) % 7)
                self.lines.append(line | one)


def microseconds() -> int:
    return time.monotonic_ns() // 1000


async def connect(port: int) -> asynctnt.Connection:
    connection = asynctnt.Connection(
        host="127.0.0.1",
        port=port,
        fetch_schema=False,
        auto_refetch_schema=False,
        reconnect_timeout=0,
    )
    await connection.connect()
    return connection


async def produce(connection: asynctnt.Connection, history: History, rng: random.Random) -> None:
    while True:
        tube = rng.choice(TUBES)
        if rng.random() < 0.2:
            values = history.values(rng.randint(2, 20))
            history.put_unknown.update(values)
            items = [[value, {"utube": str(value % 7)}] for value in values]
            with history.told("put", "p", tube, *values) as ids:
                reply = await connection.call(f"queue.tube.{tube}:put_many", [items])
                ids += reply.body[0]
        else:
            values = history.values(1)
            history.put_unknown.update(values)
            opts = {"utube": str(values[0] % 7)}
            with history.told("put", "p", tube, *values) as ids:
                reply = await connection.call(f"queue.tube.{tube}:put", [values[0], opts])
                ids.append(reply.body[0][0])
        history.put_unknown.difference_update(values)
        history.put.update(values)


async def work(connection: asynctnt.Connection, history: History, rng: random.Random) -> None:
    # Workers of one connection are one session.
    session = f"w{id(connection)}"
    while True:
        tube = rng.choice(TUBES)
        began = microseconds()
        reply = await connection.call(f"queue.tube.{tube}:take", [0.01])
        if not reply.body:
            continue
        task_id, _, value = reply.body[0]
        with history.told("take", session, tube, value) as ids:
            ids.append(task_id)
        history.lines[-1]["began_us"] = began
        assert value not in history.acked, f"{value} was delivered after its ack"
        if rng.random() < 0.2:
            with history.told("release", session, tube, value) as ids:
                ids.append(task_id)
                await connection.call(f"queue.tube.{tube}:release", [task_id])
            continue
        history.ack_unknown.add(value)
        with history.told("ack", session, tube, value) as ids:
            ids.append(task_id)
            await connection.call(f"queue.tube.{tube}:ack", [task_id])
        history.ack_unknown.discard(value)
        history.acked.add(value)


async def life(port: int, history: History, rng: random.Random, server: NodeProcess) -> None:
    """Load the node, then kill it in the middle of everything."""
    connections = [await connect(port) for _ in range(2)]
    jobs = [
        asyncio.ensure_future(role(connection, history, rng))
        for connection in connections
        for role in (produce, produce, produce, work, work)
    ]
    await asyncio.sleep(rng.uniform(0.02, 0.12))
    killed = microseconds()
    server.kill()
    done = await asyncio.gather(*jobs, return_exceptions=True)
    for outcome in done:
        # Losing the connection is what a kill does; anything else is a finding.
        assert isinstance(outcome, (TarantoolNotConnectedError, ConnectionError)), repr(outcome)
    history.event("lease_may_end", session="*", from_us=killed, to_us=microseconds())
    for connection in connections:
        with contextlib.suppress(Exception):
            await connection.disconnect()


async def check_counts(port: int) -> None:
    """Nothing is taken after a restart, and counts by state add up."""
    connection = await connect(port)
    for tube in TUBES:
        reply = await connection.call("queue.statistics", [tube])
        tasks = reply.body[0]["tasks"]
        assert tasks["taken"] == 0
        assert tasks["ready"] == tasks["total"]
    await connection.disconnect()


async def drain(port: int, history: History) -> Counter[int]:
    found: Counter[int] = Counter()
    connection = await connect(port)
    for tube in TUBES:
        while True:
            began = microseconds()
            reply = await connection.call(f"queue.tube.{tube}:take_many", [500])
            tasks = reply.body[0]
            if not tasks:
                break
            values = [task[2] for task in tasks]
            with history.told("take", "drain", tube, *values) as ids:
                ids += [task[0] for task in tasks]
            for line in history.lines[-len(tasks) :]:
                line["began_us"] = began
            found.update(values)
            with history.told("ack", "drain", tube, *values) as ids:
                ids += [task[0] for task in tasks]
                await connection.call(f"queue.tube.{tube}:ack_many", [[task[0] for task in tasks]])
        history.event("drained", tube=tube, at_us=microseconds())
    await connection.disconnect()
    return found


async def create(port: int) -> None:
    connection = await connect(port)
    for tube in TUBES:
        kind = tube.removeprefix("crash_")
        await connection.call("queue.create_tube", [tube, kind, {"if_not_exists": True}])
    await connection.disconnect()


@pytest.mark.slow
@pytest.mark.timeout(120 + 6 * CYCLES)
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_acknowledged_is_lost_over_kill_9_cycles(
    tmp_path: Path, part: int, tell: Callable[[str], None]
) -> None:
    print(f"seed {SEED}, {CYCLES} cycles: TEST_SEED={SEED} KILL9_CYCLES={CYCLES}")
    rng = random.Random(SEED + part)
    history = History()
    port = free_port()
    cycles = len(range(part, CYCLES, PARTS))
    for cycle in range(cycles):
        server = started(tmp_path / "data", port, "fsync" if cycle % 4 == 0 else "write")
        if not cycle:
            asyncio.run(create(port))
        asyncio.run(check_counts(port))
        asyncio.run(life(port, history, rng, server))
    server = started(tmp_path / "data", port, "write")
    asyncio.run(check_counts(port))
    left = asyncio.run(drain(port, history))
    server.end()
    keep_history(history, part)
    judge(history, left)
    tell(
        f"kill -9, part {part}: {cycles} cycles, "
        f"acknowledged puts {len(history.put)}, acks {len(history.acked)}, "
        f"unknown {len(history.put_unknown)} puts {len(history.ack_unknown)} acks, "
        f"left {sum(left.values())}"
    )
    assert len(history.put) > cycles


def keep_history(history: History, part: int) -> None:
    """For the outside judge, where somebody wants it."""
    if directory := os.environ.get("CRASH_HISTORY"):
        run = {"run": f"crash-{SEED}-{part}"}
        command = f"TEST_SEED={SEED} make crash CYCLES={CYCLES}"
        head = {"what": "run", "source": "crash", "promise": "kept", "replay": command}
        path = Path(directory) / f"{run['run']}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for line in (head, *history.lines):
                file.write(json.dumps(run | line, separators=(",", ":")) + "\n")


def judge(history: History, left: Counter[int]) -> None:
    """Total-queue arithmetic over what clients were told."""
    twice = {value: count for value, count in left.items() if count > 1}
    assert not twice, f"stored twice: {sorted(twice)[:10]}"
    present = set(left)
    lost = history.put - history.acked - history.ack_unknown - present
    assert not lost, f"lost: {sorted(lost)[:10]}"
    revived = present & history.acked
    assert not revived, f"back after their ack: {sorted(revived)[:10]}"
    unexpected = present - history.put - history.put_unknown
    assert not unexpected, f"from nowhere: {sorted(unexpected)[:10]}"


def planted(**changes: Any) -> History:
    history = History()
    history.put = {1, 2, 3}
    history.acked = {1}
    for name, value in changes.items():
        setattr(history, name, value)
    return history


@pytest.mark.parametrize(
    ("history", "left", "verdict"),
    [
        (planted(), Counter({2: 1}), "lost"),
        (planted(), Counter({2: 1, 3: 2}), "stored twice"),
        (planted(), Counter({1: 1, 2: 1, 3: 1}), "back after their ack"),
        (planted(), Counter({2: 1, 3: 1, 9: 1}), "from nowhere"),
    ],
)
def test_the_judge_finds_what_is_planted(
    history: History, left: Counter[int], verdict: str
) -> None:
    with pytest.raises(AssertionError, match=verdict):
        judge(history, left)


def test_the_judge_accepts_unknown_outcomes() -> None:
    judge(planted(put_unknown={7}, ack_unknown={2}), Counter({3: 1, 7: 1}))
