"""Idle switch-overs beside a data directory full of files, next to one that has none.

`python -m benchmarks.flips [--flips N] [--files N]`: two pairs at a time, flipped in turns, so that
whatever else the machine does slows both. Also what the masters burn while nobody asks anything.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from demo.crowd import connect, disconnect
from demo.pair import Member, cluster, in_step, until
from tandemq.log.disk import RESCUE_PREFIX

RATIO_MAX = 1.2
#: Seconds over which idle CPU is measured.
IDLE_SECONDS = 10.0
#: Between two flips of a pair, for its links to stand in the new direction.
SETTLE_SECONDS = 1.2
_PUT = "queue.tube.fifo:put"


def fill(directory: Path, files: int) -> None:
    """Files beside the log: half of them foreign, half where rescue files are."""
    rescue = directory / RESCUE_PREFIX
    for number in range(files):
        if number % 2:
            (rescue / f"{9:010d}-{number:020d}.wal").touch()
        else:
            (directory / f"other-{number}.txt").touch()


async def flip(old: Member, new: Member) -> float:
    """Milliseconds from the command to the first put the new node accepts."""
    await until("in step", lambda: in_step(new, old), (old, new))
    # A flip on the heels of another waits for links to be dialled anew: not what is asked here.
    await asyncio.sleep(SETTLE_SECONDS)
    connection = (await connect("127.0.0.1", new.port, 1))[0]
    client = old.client()
    began = time.perf_counter()
    await asyncio.to_thread(client.switchover, new.name)
    await connection.call(_PUT, ["x"])
    took = (time.perf_counter() - began) * 1_000
    await disconnect([connection])
    return took


async def measure(directory: Path, flips: int, files: int) -> bool:
    """Print both sides; whether the goal is met."""
    async with AsyncExitStack() as stack:
        pairs = {
            name: await stack.enter_async_context(cluster(directory / name, ack="local"))
            for name in ("none", "full")
        }
        for member in pairs["full"]:
            fill(member.data, files)
        for a, _ in pairs.values():
            connection = (await connect("127.0.0.1", a.port, 1))[0]
            await connection.call("queue.create_tube", ["fifo", "fifo"])
            await disconnect([connection])
        before = {name: pair[0].cpu_seconds() for name, pair in pairs.items()}
        await asyncio.sleep(IDLE_SECONDS)
        idle = {
            name: (pair[0].cpu_seconds() - before[name]) / IDLE_SECONDS * 1_000
            for name, pair in pairs.items()
        }
        took: dict[str, list[float]] = {name: [] for name in pairs}
        for turn in range(flips):
            order = list(pairs.items())
            for name, (a, b) in order if turn % 4 < 2 else reversed(order):
                took[name].append(await flip(*((a, b) if turn % 2 == 0 else (b, a))))
    p99 = {}
    for name, count in (("none", 0), ("full", files)):
        times = sorted(took[name])
        p50, p99[name] = times[len(times) // 2], times[(len(times) * 99 + 99) // 100 - 1]
        print(
            f"{count:5d} files: {flips} flips, p50 {p50:.1f} ms, p99 {p99[name]:.1f} ms; "
            f"idle master {idle[name]:.1f} ms of CPU a second"
        )
    ratio = p99["full"] / p99["none"]
    print(f"p99 {ratio:.2f}x, goal {RATIO_MAX}x")
    return ratio <= RATIO_MAX


def main(argv: list[str]) -> int:
    """0 when the goal is met, 1 when it is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.flips", description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--files", type=int, default=5_000)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as directory:
        met = uvloop.run(measure(Path(directory), options.flips, options.files))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
