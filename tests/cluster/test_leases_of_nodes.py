"""Real nodes: a worker's lease outlives a pause of its master, and a time without any master."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_nodes import Pair, until

TUBE = "queue.tube.t"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    one = Pair(tmp_path, "--in-replicaset", "--ttr", "30").start()
    yield one
    one.stop()


def hand_out(pair: Pair, ttr: float) -> tuple[object, int, bytes]:
    """A worker on a, the task in its hands, and its session."""
    worker = pair.a.connect()
    worker.call("queue.create_tube", ["t", "fifottl", {"ttr": ttr}])
    session = worker.call("queue.identify").data[0]
    worker.call(f"{TUBE}:put", ["x"])
    task_id = worker.call(f"{TUBE}:take", [1]).data[0][0]
    return worker, task_id, session


def test_a_lease_outlives_a_stop_of_the_master(pair: Pair) -> None:
    worker, task_id, _ = hand_out(pair, 2)
    other = pair.a.connect()
    assert pair.a.process is not None
    pair.a.process.send_signal(signal.SIGSTOP)
    time.sleep(4)
    pair.a.process.send_signal(signal.SIGCONT)
    assert other.call(f"{TUBE}:take", [0.5]).data == []
    assert worker.call(f"{TUBE}:ack", [task_id]).data[0][1] in ("-", b"-")
    assert "stood still for" in pair.a.text()
    pair.in_step()


def test_a_lease_outlives_six_seconds_without_a_master(pair: Pair) -> None:
    _, task_id, session = hand_out(pair, 4)
    pair.in_step()
    pair.a.end(signal.SIGKILL)
    time.sleep(6)
    code, report = pair.b.role(False, force=True)
    assert code == 200, report
    other, worker = pair.b.connect(), pair.b.connect()
    assert other.call(f"{TUBE}:take", [0.5]).data == []
    worker.call("queue.identify", [session])
    assert worker.call(f"{TUBE}:ack", [task_id]).data[0][1] in ("-", b"-")


def test_a_lease_that_nobody_renews_ends_after_both(pair: Pair) -> None:
    _, task_id, _ = hand_out(pair, 2)
    assert pair.a.process is not None
    pair.a.process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    pair.a.process.send_signal(signal.SIGCONT)
    other = pair.a.connect()
    found = until(lambda: other.call(f"{TUBE}:take", [1]).data, 6)
    assert found[0][0] == task_id
