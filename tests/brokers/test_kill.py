"""The examples of examples/frameworks over kill -9 of their master: nothing lost.

In pair mode every answered put and ack is on both nodes, so that twice is done only what a worker
had done and not yet acknowledged when its master died: what it had in hand.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.cluster_nodes import Pair, pair, until

pytestmark = [pytest.mark.integration]
EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"
TASKS = 600
WORKERS = {
    "taskiq": [
        "taskiq",
        "worker",
        "with_taskiq:broker",
        "--workers",
        "1",
        "--max-async-tasks",
        "4",
    ],
    "dramatiq": ["dramatiq", "with_dramatiq", "--processes", "1", "--threads", "4"],
    "celery": ["celery", "-A", "with_celery", "worker", "--concurrency", "2"],
}
#: Tasks a worker may have in hand: Dramatiq takes as many ahead as twice its threads.
IN_HAND = {"taskiq": 5, "dramatiq": 12, "celery": 4}


def environment(nodes: Pair) -> dict[str, str]:
    servers = f"127.0.0.1:{nodes.a.port},127.0.0.1:{nodes.b.port}"
    return {**os.environ, "SERVERS": servers, "PYTHONWARNINGS": "ignore"}


def sent(out: Path) -> Counter[int]:
    return Counter(int(number) for number in re.findall(r"sent (\d+)", out.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("framework", WORKERS)
def test_a_master_killed_in_the_middle(tmp_path: Path, framework: str) -> None:
    out = tmp_path / "out"
    with pair(tmp_path, "--set", "replication.ack=pair", "--ttr", "60", "--in-replicaset") as nodes:
        given = {"cwd": EXAMPLES, "env": environment(nodes)}
        program = str(EXAMPLES / f"with_{framework}.py")
        subprocess.run([sys.executable, program, str(TASKS)], check=True, timeout=120, **given)
        with out.open("w") as file:
            command = [sys.executable, "-m", *WORKERS[framework]]
            worker = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, **given
            )
        try:
            until(lambda: len(sent(out)) > TASKS // 4, 60.0)
            nodes.a.end(signal.SIGKILL)
            code, flip = nodes.b.role(False, force=True)
            assert (code, flip["state"]) == (200, "RUNNING")
            until(lambda: len(sent(out)) == TASKS, 90.0, every=0.1)
            counts = nodes.b.connect()

            def left() -> int:
                found = counts.call("queue.statistics", "letters").data[0]
                return int(found[b"tasks"][b"total"])

            until(lambda: left() == 0, 30.0, every=0.1)
            worker.send_signal(signal.SIGTERM)
            worker.wait(30)
        except BaseException:
            print(out.read_text()[-4000:])
            raise
        finally:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
    found = sent(out)
    assert set(found) == set(range(TASKS))
    twice = [number for number, times in found.items() if times > 1]
    assert len(twice) <= IN_HAND[framework], twice
    assert max(found.values()) <= 2
