"""A master killed, forced, stopped; a log cut and rescued; a replica that starts from nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import tarantool

from tests.cluster.cluster_nodes import Member, Pair, pair, until

SHARED = ("--in-replicaset", "--ttr", "30")


def put(member: Member, count: int, first: int = 0) -> None:
    client = member.connect()
    client.call("queue.create_tube", "jobs", "fifo", {"if_not_exists": True})
    for number in range(first, first + count):
        client.call("queue.tube.jobs:put", number)


def payloads(member: Member) -> list[int]:
    """What is in the tube, by taking it all."""
    client = member.connect()
    found = []
    while task := client.call("queue.tube.jobs:take", 0).data:
        found.append(task[0][2])
        client.call("queue.tube.jobs:ack", task[0][0])
    return found


def rejoins(nodes: Pair) -> None:
    until(lambda: nodes.a.caught_up_with(nodes.b))
    assert nodes.a.status()["state"] == "WAITING" or nodes.a.status()["state"] == "INIT"


def test_kill_promote_and_return_of_the_old_master(tmp_path: Path) -> None:
    with pair(tmp_path, *SHARED) as nodes:
        put(nodes.a, 20)
        nodes.in_step()
        nodes.a.end(signal.SIGKILL)
        # Whether it is dead or out of reach, and what it acknowledged last, nobody here knows.
        code, problem = nodes.b.role(False)
        assert (code, problem["loss_bound"]["known"]) == (409, False)
        assert "nothing shows that it does not serve" in problem["detail"]
        code, flip = nodes.b.role(False, force=True)
        assert (code, flip["state"]) == (200, "RUNNING")
        put(nodes.b, 5, 20)
        # Its configuration still says writable: it sees the newer term and follows.
        nodes.a.start()
        rejoins(nodes)
        assert "fenced" in nodes.a.status()["ro_reason"]
        # A replica in order, although its configuration says otherwise: nobody is needed.
        until(lambda: nodes.a.ask("/readiness")[0] == 200)
        assert nodes.a.status()["problem"] is None
        assert payloads(nodes.b) == list(range(25))


def test_records_a_forced_promotion_cuts_are_rescued(tmp_path: Path) -> None:
    with pair(tmp_path, *SHARED) as nodes:
        put(nodes.a, 10)
        nodes.in_step()
        nodes.b.end()
        put(nodes.a, 7, 10)
        nodes.a.end(signal.SIGKILL)
        nodes.b.start("--read-only")
        code, flip = nodes.b.role(False, force=True)
        assert (code, flip["state"]) == (200, "RUNNING"), flip
        assert not flip["loss_bound"]["known"]
        put(nodes.b, 3, 100)
        nodes.a.start()
        rejoins(nodes)
        assert "7 records leave the log for rescue files" in nodes.a.text()
        assert nodes.a.status()["rescue_files"] == 1
        nodes.b.switch_to(nodes.a)
        assert payloads(nodes.a) == [*range(10), 100, 101, 102]


def test_a_stopped_master_wakes_up_to_a_newer_term_and_acknowledges_nothing(
    tmp_path: Path,
) -> None:
    with pair(tmp_path, *SHARED) as nodes:
        put(nodes.a, 5)
        nodes.in_step()
        client = nodes.a.connect()
        assert nodes.a.process is not None
        nodes.a.process.send_signal(signal.SIGSTOP)
        code, problem = nodes.b.role(False)
        assert code == 409, problem
        assert "loss_bound" in problem
        code, flip = nodes.b.role(False, force=True)
        assert (code, flip["state"]) == (200, "RUNNING"), flip
        put(nodes.b, 2, 5)
        nodes.a.process.send_signal(signal.SIGCONT)
        until(lambda: nodes.a.status()["state"] == "WAITING")
        rejoins(nodes)
        with pytest.raises(tarantool.Error):
            client.call("queue.tube.jobs:put", "too late")
        assert payloads(nodes.b) == list(range(7))


def test_a_replica_too_far_behind_bootstraps_from_a_snapshot(tmp_path: Path) -> None:
    flags = (*SHARED, "--set", "wal.segment_bytes=1MiB", "--set", "replication.retain_bytes=1MiB")
    with pair(tmp_path, *flags) as nodes:
        put(nodes.a, 10)
        nodes.in_step()
        # Until a has asked b itself who it is, it keeps all of its log.
        time.sleep(0.5)
        nodes.b.end()
        client = nodes.a.connect()
        for number in range(10, 50):
            client.call("queue.tube.jobs:put", b"x" * 100_000 + str(number).encode())
            if number > 46:
                # The log goes once two snapshots do without it.
                assert client.call("box.snapshot").data == [b"ok"]
        nodes.b.start("--read-only")
        until(lambda: nodes.b.caught_up_with(nodes.a))
        assert "installed the snapshot of a" in nodes.b.text()
        nodes.a.switch_to(nodes.b)
        assert nodes.b.connect().call("queue.statistics", "jobs").data[0][b"tasks"][b"ready"] == 50
        # What was installed is on the disk: it is still there after a restart.
        nodes.b.end(signal.SIGKILL)
        nodes.b.start()
        until(lambda: nodes.b.status()["state"] == "RUNNING")
        assert nodes.b.connect().call("queue.statistics", "jobs").data[0][b"tasks"][b"ready"] == 50


def test_a_lost_disk_comes_back_empty_and_gets_everything(tmp_path: Path) -> None:
    with pair(tmp_path, *SHARED) as nodes:
        put(nodes.a, 30)
        nodes.in_step()
        nodes.a.end(signal.SIGKILL)
        nodes.a.data.rename(tmp_path / "lost")
        assert nodes.b.role(False, force=True)[0] == 200
        put(nodes.b, 1, 30)
        nodes.a.start()
        rejoins(nodes)
        assert nodes.a.status()["cluster_id"] == nodes.b.status()["cluster_id"]
        nodes.b.switch_to(nodes.a)
        assert payloads(nodes.a) == list(range(31))


def test_pair_mode_waits_goes_alone_and_comes_back(tmp_path: Path) -> None:
    flags = (*SHARED, "--set", "replication.ack=pair", "--set", "replication.solo_after=1")
    with pair(tmp_path, *flags) as nodes:
        until(lambda: not nodes.a.status()["solo"])
        put(nodes.a, 5)
        nodes.b.end(signal.SIGKILL)
        client = nodes.a.connect()
        began = time.monotonic()
        client.call("queue.tube.jobs:put", 5)
        assert 0.5 < time.monotonic() - began < 5
        assert nodes.a.status()["solo"]
        nodes.b.start("--read-only")
        until(lambda: not nodes.a.status()["solo"])
        client.call("queue.tube.jobs:put", 6)
        nodes.a.end(signal.SIGKILL)
        # Everything acknowledged is on the replica: that is what pair mode promises.
        code, flip = nodes.b.role(False, force=True)
        assert code == 200
        assert flip["loss_bound"]["records"] in (0, None)
        assert payloads(nodes.b) == list(range(7))


def test_pair_mode_that_never_goes_alone_acknowledges_nothing_alone(tmp_path: Path) -> None:
    flags = (*SHARED, "--set", "replication.ack=pair", "--set", "replication.solo_after=null")
    with pair(tmp_path, *flags) as nodes:
        put(nodes.a, 1)
        nodes.b.end()
        client = nodes.a.connect(socket_timeout=1)
        with pytest.raises(tarantool.Error):
            client.call("queue.tube.jobs:put", "unknown outcome")
        # An operator may decide otherwise.
        assert nodes.a.ask("/v1/solo", {})[0] == 200
        assert nodes.a.connect().call("queue.tube.jobs:put", "alone").data[0][1] == b"r"


def test_a_switch_over_nobody_answers_is_taken_back_within_two_seconds(tmp_path: Path) -> None:
    with pair(tmp_path, "--set", "replication.lease=20") as nodes:
        put(nodes.a, 3)
        nodes.in_step()
        assert nodes.b.process is not None
        nodes.b.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        code, problem = nodes.a.ask("/v1/switchover", {"to": "b", "dry_run": False})
        took = time.monotonic() - began
        assert code == 409, problem
        assert "b: is not RUNNING" in problem["detail"]
        assert nodes.a.status()["state"] == "RUNNING"
        assert took < 2.5
        nodes.b.process.send_signal(signal.SIGCONT)
        # The orders it finds on waking are no longer meant.
        time.sleep(3)
        assert nodes.a.status()["state"] == "RUNNING"
        until(lambda: nodes.b.caught_up_with(nodes.a))
        assert payloads(nodes.a) == [0, 1, 2]


def test_switch_overs_right_behind_one_another(tmp_path: Path) -> None:
    with pair(tmp_path, *SHARED) as nodes:
        put(nodes.a, 3)
        nodes.in_step()
        for _ in range(10):
            nodes.a.switch_to(nodes.b)
            nodes.b.switch_to(nodes.a)
        assert payloads(nodes.a) == [0, 1, 2]
