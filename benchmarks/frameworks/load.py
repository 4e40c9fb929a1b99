"""What the three applications share: a task that notes when it began, and two kinds of load.

    python -m benchmarks.frameworks.with_celery backlog 5000  # one after the other
    python -m benchmarks.frameworks.with_celery paced 1000 100  # 100 a second

A producer prints one JSON line: how many, wall and CPU seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable

#: What a task carries besides the moment it was sent.
PAYLOAD = "x" * 100
BROKER = os.environ.get("BROKER", "tandem")
URL = os.environ.get("URL", "127.0.0.1:3301")
_files: dict[int, int] = {}


def begun(sent_ns: int) -> None:
    """The task's whole work: a line with the moments it was sent and begun, one write."""
    now, pid = time.monotonic_ns(), os.getpid()
    if pid not in _files:  # a child has a file description of its own
        _files[pid] = os.open(os.environ["OUT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_files[pid], b"%d %d\n" % (sent_ns, now))


async def produce(send: Callable[[int], Awaitable[object]]) -> None:
    """The producer of the command line; `send` gets the moment to put into the task."""
    kind, count = sys.argv[1], int(sys.argv[2])
    rate = float(sys.argv[3]) if kind == "paced" else None
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(count):
        if rate is not None:
            await asyncio.sleep(wall + number / rate - time.perf_counter())
        await send(time.monotonic_ns())
    spent = (time.perf_counter() - wall, time.process_time() - cpu)
    print(json.dumps({"count": count, "wall": spent[0], "cpu": spent[1]}), flush=True)


def produce_blocking(send: Callable[[int], object]) -> None:
    """The same for a framework whose `send` blocks."""

    async def one(sent_ns: int) -> None:
        send(sent_ns)

    asyncio.run(produce(one))
