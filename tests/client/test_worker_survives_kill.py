"""examples/worker.py over kill -9 of its master: none lost, none twice but as documented."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from cluster_nodes import Pair, pair, until

import tandemq

pytestmark = [pytest.mark.integration]
EXAMPLE = Path(__file__).parents[2] / "examples" / "worker.py"
TASKS = 10_000


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


def survive(nodes: Pair, out: Path) -> list[str]:
    """What the worker printed while its master was killed and the other node promoted by force."""
    produce(nodes)
    with out.open("w") as file:
        worker = subprocess.Popen(
            [sys.executable, str(EXAMPLE), servers(nodes)], stdout=file, stderr=file
        )
    try:
        until(lambda: out.stat().st_size > 5 * TASKS // 5, 60.0)
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


def test_the_example_is_short() -> None:
    assert len([line for line in EXAMPLE.read_text().splitlines() if line.strip()]) < 15


@pytest.mark.parametrize("ack", ["local", "pair"])
def test_ten_thousand_tasks_and_a_kill(tmp_path: Path, ack: str) -> None:
    options = ("--in-replicaset", "--ttr", "30", "--set", f"replication.ack={ack}")
    solo = ("--set", "replication.solo_after=500ms") if ack == "pair" else ()
    with pair(tmp_path, *options, *solo) as nodes:
        lines = survive(nodes, tmp_path / "worker.out")
        a, b = nodes.a.port, nodes.b.port
    switches = [at for at, line in enumerate(lines) if line.startswith("switched")]
    assert len(switches) == 1, lines[-5:]
    told = rf"switched from 127\.0\.0\.1:{a} to 127\.0\.0\.1:{b}, term \d+"
    assert re.fullmatch(told, lines[switches[0]])
    before = [int(line) for line in lines[: switches[0]]]
    after = [int(line) for line in lines[switches[0] + 1 :]]
    assert 0 < len(before) < TASKS, "the kill came in the middle"
    assert set(before) | set(after) == set(range(TASKS)), "none is lost"
    twice = {number for number, count in Counter(before + after).items() if count > 1}
    if ack == "pair":
        assert twice == set(), "an answered ack is on both nodes"
    else:
        # Acks that the master answered and the other node never got: the very last ones.
        assert len(before) + len(after) == TASKS + len(twice)
        assert twice == set(before[len(before) - len(twice) :])
