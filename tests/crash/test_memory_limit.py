"""A process that runs out of memory in the middle of its work acknowledges nothing it may lose.

RLIMIT_DATA is drawn close around a running node; what it had acknowledged must be there when it is
started again without a limit.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
from pathlib import Path

import asynctnt
import pytest
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolError

from tests.crash.test_kill9 import connect
from tests.node.test_process import Process

RUNS = int(os.environ.get("MEMORY_RUNS", "2"))
CLIENTS = 6
#: How much more data the node may have than it has when the load begins, in bytes.
ROOM = (24 << 20, 60 << 20)
LIFE_SECONDS = 12.0

pytestmark = [pytest.mark.asyncio, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def data_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmData"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmData")


async def put(connection: asynctnt.Connection, rng: random.Random, acked: list[int]) -> None:
    """Batches of about a megabyte, until the node is gone; what was answered is kept."""
    while True:
        size = rng.choice((10_000, 100_000, 900_000))
        items = [[rng.randbytes(10) * (size // 10)] for _ in range(max(1, 1_000_000 // size))]
        try:
            reply = await connection.call("queue.tube.t:put_many", [items])
        except TarantoolDatabaseError:
            # Refused: nothing was promised.
            await asyncio.sleep(0.01)
            continue
        acked.extend(reply.body[0])


@pytest.mark.parametrize("seed", range(RUNS))
async def test_what_was_acknowledged_before_memory_ended_is_there(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    node = Process(tmp_path / "data", "--wal-mode", "write")
    first = await connect(node.port)
    await first.call("queue.create_tube", ["t", "fifo"])
    connections = [await connect(node.port) for _ in range(CLIENTS)]
    limit = data_bytes(node.process.pid) + rng.randint(*ROOM)
    resource.prlimit(node.process.pid, resource.RLIMIT_DATA, (limit, limit))
    acked: list[int] = []
    tasks = [asyncio.ensure_future(put(each, rng, acked)) for each in connections]
    await asyncio.wait(tasks, timeout=LIFE_SECONDS)
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, (TarantoolError, OSError, asyncio.CancelledError)) for end in ends)
    code = node.process.poll()
    if code is None:
        node.end(signal.SIGKILL)
    for connection in (first, *connections):
        await connection.disconnect()
    print(f"seed {seed}: {len(acked)} acknowledged, exit code {code}")
    assert code in (None, 5), node.text()[-2_000:]
    again = Process(tmp_path / "data", "--wal-mode", "write")
    last = await connect(again.port)
    for task_id in acked:
        assert (await last.call("queue.tube.t:peek", [task_id])).body[0][0] == task_id
    await last.disconnect()
    assert again.end() == 0
