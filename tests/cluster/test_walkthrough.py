"""The seed's own walk-through, with a stock connector against two real nodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import tarantool

from tests.cluster.cluster_nodes import Member, pair, until

SHARED = ("--in-replicaset", "--ttr", "30")


def state(member: Member) -> bytes:
    found: bytes = member.connect().call("queue.state").data[0]
    return found


def taken(worker: Any, driver: str) -> tuple[Any, Any]:
    """The worker's session and the one task of the new tube `jobs`, which it holds."""
    worker.call("queue.create_tube", "jobs", driver)
    session = worker.call("queue.identify").data[0]
    worker.call("queue.tube.jobs:put", "one")
    return session, worker.call("queue.tube.jobs:take", 0).data[0]


def test_states_and_a_task_in_hand_across_a_flip(tmp_path: Path) -> None:
    with pair(tmp_path, *SHARED) as nodes:
        assert (state(nodes.a), state(nodes.b)) == (b"RUNNING", b"INIT")
        worker = nodes.a.connect()
        session, task = taken(worker, "fifottl")
        report = nodes.a.switch_to(nodes.b)
        assert [step["outcome"] for step in report["steps"]] == ["done", "done"]
        assert (state(nodes.a), state(nodes.b)) == (b"WAITING", b"RUNNING")
        with pytest.raises(tarantool.DatabaseError, match="read-only instance"):
            worker.call("queue.tube.jobs:ack", task[0])
        worker = nodes.b.connect()
        assert worker.call("queue.identify", session).data == [session]
        assert worker.call("queue.tube.jobs:ack", task[0]).data[0][1] == b"-"
        # And back, asked of the node that is to take over, once that follows.
        nodes.in_step()
        report = nodes.b.switch_to(nodes.a)
        assert report["done"]
        assert (state(nodes.a), state(nodes.b)) == (b"RUNNING", b"WAITING")
        nodes.in_step()
        assert nodes.a.connect().call("queue.statistics", "jobs").data[0][b"tasks"][b"total"] == 0


def test_a_worker_gone_longer_than_ttr_loses_its_task(tmp_path: Path) -> None:
    with pair(tmp_path, "--in-replicaset", "--ttr", "3") as nodes:
        worker = nodes.a.connect()
        session, task = taken(worker, "fifo")
        began = time.monotonic()
        nodes.a.switch_to(nodes.b)
        worker = nodes.b.connect()
        assert worker.call("queue.tube.jobs:peek", task[0]).data[0][1] == b"t"
        until(lambda: worker.call("queue.tube.jobs:peek", task[0]).data[0][1] == b"r", 20)
        assert time.monotonic() - began > 2.5
        with pytest.raises(tarantool.DatabaseError, match="is unknown"):
            worker.call("queue.identify", session)
        with pytest.raises(tarantool.DatabaseError, match="Task was not taken"):
            worker.call("queue.tube.jobs:ack", task[0])


@pytest.mark.parametrize(
    "flags", [("--ttr", "0"), ("--alone", "--ttr", "30")], ids=["no-ttr", "alone"]
)
def test_without_a_session_to_claim_it_a_task_is_released_at_promotion(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    with pair(tmp_path, *flags) as nodes:
        worker = nodes.a.connect()
        _, task = taken(worker, "utube")
        nodes.a.switch_to(nodes.b)
        assert nodes.b.connect().call("queue.tube.jobs:take", 0).data == [task]


def test_a_replica_reads_from_its_own_copy_and_refuses_to_write(tmp_path: Path) -> None:
    with pair(tmp_path, *SHARED) as nodes:
        client = nodes.a.connect()
        client.call("queue.create_tube", "jobs", "utubettl")
        for number in range(10):
            client.call("queue.tube.jobs:put", number, {"utube": f"u{number % 3}"})
        nodes.in_step()
        replica = nodes.b.connect()
        assert replica.call("queue.statistics", "jobs").data[0][b"tasks"][b"ready"] == 10
        assert replica.call("queue.tube.jobs:peek", 3).data == [[3, b"r", 3]]
        schemaful = nodes.b.connect(fetch_schema=True, encoding="utf-8")
        assert [row[0] for row in schemaful.select("_queue", []).data] == ["jobs"]
        for name, args in (("put", (1,)), ("take", (0,)), ("kick", (1,)), ("drop", ())):
            with pytest.raises(tarantool.DatabaseError, match="queue is in INIT state"):
                replica.call(f"queue.tube.jobs:{name}", *args)
        assert nodes.b.ask("/replica")[0] == 200
        assert nodes.b.ask("/primary")[0] == 503
        assert nodes.b.status()["following"]


def test_waiting_workers_are_told_at_once(tmp_path: Path) -> None:
    with pair(tmp_path, *SHARED) as nodes:
        client = nodes.a.connect()
        client.call("queue.create_tube", "jobs", "fifo")
        waiting = nodes.a.connect()
        packet = tarantool.request.RequestCall(waiting, "queue.tube.jobs:take", [30], call_16=False)
        waiting._socket.sendall(bytes(packet))
        time.sleep(0.2)
        began = time.monotonic()
        nodes.a.switch_to(nodes.b)
        waiting._socket.settimeout(5)
        assert b"read-only instance" in waiting._socket.recv(4096)
        assert time.monotonic() - began < 4


def test_time_without_a_master_does_not_count_however_busy_the_nodes_are(tmp_path: Path) -> None:
    with pair(tmp_path, "--in-replicaset", "--ttr", "1") as nodes:
        worker = nodes.a.connect()
        session, task = taken(worker, "fifo")
        worker.close()
        nodes.a.switch_to(nodes.b)
        assert nodes.b.role(read_only=True)[0] == 200
        # Longer than the ttr, and both nodes are called all the time.
        others = [nodes.a.connect(), nodes.b.connect()]
        began = time.monotonic()
        while time.monotonic() - began < 2:
            for one in others:
                assert one.call("queue.tube.jobs:peek", task[0]).data[0][1] == b"t"
        assert nodes.a.role(read_only=False)[0] == 200
        worker = nodes.a.connect()
        assert worker.call("queue.identify", session).data == [session]
        assert worker.call("queue.tube.jobs:ack", task[0]).data[0][1] == b"-"
