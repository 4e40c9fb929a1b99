"""examples/worker.py over kill -9 of its master: none lost, none twice but as documented."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import tandemq
from tests.client.cutter import Cutter
from tests.cluster.cluster_nodes import Pair, pair, until

pytestmark = [pytest.mark.integration]
EXAMPLE = Path(__file__).parents[2] / "examples" / "worker.py"
TASKS = 10_000
SHARED = ("--in-replicaset", "--ttr", "30")


def servers(nodes: Pair) -> str:
    return f"127.0.0.1:{nodes.a.port},127.0.0.1:{nodes.b.port}"


def produce(nodes: Pair) -> None:
    """With keys, and every batch twice: the second time nothing is stored."""
    with tandemq.connect_sync(servers(nodes)) as client:
        tube = client.create_tube("jobs", "fifo")
        for first in range(0, TASKS, 1000):
            batch = range(first, first + 1000)
            for _ in range(2):
                ids = tube.put_many(batch, keys=[f"job-{n}" for n in batch])
                assert ids == list(batch)
    nodes.in_step()


def survive(nodes: Pair, out: Path, part: Callable[[], None] | None = None) -> list[str]:
    """What the worker printed while its master was killed and the other node promoted by force.

    part: keeps the last hundred tasks or more from the other node.
    """
    produce(nodes)
    with out.open("w") as file:
        worker = subprocess.Popen(
            [sys.executable, str(EXAMPLE), servers(nodes)], stdout=file, stderr=file
        )
    try:
        until(lambda: out.stat().st_size > TASKS, 60.0)
        if part is not None:
            part()
            before = out.stat().st_size
            until(lambda: out.stat().st_size > before + 500)
        nodes.a.end(signal.SIGKILL)
        code, flip = nodes.b.role(False, force=True)
        assert (code, flip["state"]) == (200, "RUNNING")
        statistics = nodes.b.connect()

        def left() -> int:
            assert worker.poll() is None, out.read_text()[-2000:]
            found = statistics.call("queue.statistics", "jobs").data[0]
            return int(found[b"tasks"][b"total"])

        until(lambda: left() == 0, 180.0, every=0.2)
    finally:
        worker.kill()
        worker.wait()
    return out.read_text().splitlines()


@contextlib.contextmanager
def relay(port: int) -> Iterator[Cutter]:
    """A cutter beside the test, in a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    cutter = run(Cutter(port).__aenter__())
    try:
        yield cutter
    finally:
        run(cutter.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_the_example_is_short() -> None:
    assert len([line for line in EXAMPLE.read_text().splitlines() if line.strip()]) < 15


def printed(nodes: Pair, lines: list[str]) -> tuple[list[int], list[int]]:
    """Tasks before and after the line that tells the switch."""
    switches = [at for at, line in enumerate(lines) if line.startswith("switched")]
    assert len(switches) == 1, lines[-5:]
    a, b = nodes.a.port, nodes.b.port
    told = rf"switched from 127\.0\.0\.1:{a} to 127\.0\.0\.1:{b}, term \d+"
    assert re.fullmatch(told, lines[switches[0]])
    before = [int(line) for line in lines[: switches[0]]]
    after = [int(line) for line in lines[switches[0] + 1 :]]
    assert 0 < len(before) < TASKS, "the kill came in the middle"
    assert set(before) | set(after) == set(range(TASKS)), "none is lost"
    return before, after


def test_pair_mode_none_lost_none_twice(tmp_path: Path) -> None:
    """An ack that was answered is on both nodes."""
    options = ("--set", "replication.ack=pair", "--set", "replication.solo_after=500ms")
    with pair(tmp_path, *SHARED, *options) as nodes:
        before, after = printed(nodes, survive(nodes, tmp_path / "worker.out"))
    assert len(before) + len(after) == TASKS


def test_local_mode_twice_is_what_only_the_dead_master_knew(tmp_path: Path) -> None:
    """Acks that were answered and never reached the other node: the very last ones."""
    nodes = Pair(tmp_path, *SHARED)
    with relay(nodes.a.port) as cutter:
        nodes.b.peers = [cutter.port]
        try:
            nodes.start()
            with tandemq.connect_sync(servers(nodes)) as client:
                tube = client.create_tube("by-hand", "fifo")
                tube.put("acked in vain")
                (task,) = tube.take_many(1)

                def part() -> None:
                    cutter.freeze(new=True)
                    task.ack()

                before, after = printed(nodes, survive(nodes, tmp_path / "worker.out", part))
                # Acked there and taken here, by a session that knows nothing of it: given back.
                again = tube.take(30)
                assert again is not None
                assert again.data == "acked in vain"
        finally:
            nodes.stop()
    twice = {number for number, count in Counter(before + after).items() if count > 1}
    assert len(twice) > 50
    assert twice == set(before[-len(twice) :])
    assert len(before) + len(after) == TASKS + len(twice)
