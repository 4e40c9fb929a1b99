"""Pair mode between nodes that make records durable in different ways: refused, or said."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.cluster_nodes import TANDEMQ, Member, Pair, pair, until

PAIR = ("--set", "replication.ack=pair", "--set", "replication.solo_after=0.5")
FSYNC = ("--wal-mode", "fsync")


def begin(nodes: Pair) -> None:
    """a in fsync, b in write."""
    nodes.a.start(*FSYNC, wait=False)
    nodes.b.start("--read-only")
    nodes.a.ready()


def put(member: Member, count: int) -> None:
    client = member.connect()
    client.call("queue.create_tube", "jobs", "fifo", {"if_not_exists": True})
    for number in range(count):
        client.call("queue.tube.jobs:put", number)


def promise(member: Member) -> str:
    told = member.connect().call("box.info").data[0]
    found = member.status()["promise"]
    assert told[b"queue"][b"promise"].decode() == found
    return str(found)


def refused(nodes: Pair) -> bool:
    """b says that a does not take it, and why."""
    problem = nodes.b.status()["peers"][0]["problem"] or ""
    return "wal.mode is write on b and fsync on a" in problem


def test_a_replica_in_a_weaker_mode_is_refused_until_it_is_alike(tmp_path: Path) -> None:
    with pair(tmp_path, *PAIR, start=False) as nodes:
        begin(nodes)
        until(lambda: refused(nodes))
        # Alone it promises what its own disk does, and keeps refusing whoever connects again.
        until(lambda: nodes.a.status()["solo"])
        put(nodes.a, 3)
        assert promise(nodes.a) == "fsync"
        nodes.b.end()
        nodes.b.start("--read-only")
        until(lambda: refused(nodes))
        assert nodes.b.status()["lsn"] == 0
        nodes.b.end()
        nodes.b.start("--read-only", *FSYNC)
        nodes.in_step()
        until(lambda: not nodes.a.status()["solo"])
        assert promise(nodes.a) == "fsync"


def test_mixed_modes_promise_the_weaker_one_and_say_so(tmp_path: Path) -> None:
    mixed = ("--set", "replication.mixed_modes=true")
    with pair(tmp_path, *PAIR, *mixed, start=False) as nodes:
        begin(nodes)
        nodes.in_step()
        put(nodes.a, 3)
        until(lambda: not nodes.a.status()["solo"])
        assert promise(nodes.a) == promise(nodes.b) == "write"
        assert nodes.a.status()["wal_mode"] == "fsync"
        words = [TANDEMQ, "doctor", f"127.0.0.1:{nodes.a.admin_port}"]
        told = subprocess.run(words, capture_output=True, timeout=60, check=False, text=True)
        assert "promises write, not fsync" in " ".join(told.stdout.split()), told.stdout
        nodes.b.end()
        until(lambda: nodes.a.status()["solo"])
        assert promise(nodes.a) == "fsync"


def test_whoever_was_fed_before_the_lead_is_asked_then(tmp_path: Path) -> None:
    with pair(tmp_path) as nodes:
        put(nodes.a, 3)
        nodes.in_step()
        nodes.b.end()
        put(nodes.a, 3)
        nodes.a.end()
        # a does not lead, has more, and hands it on without asking for the mode.
        nodes.a.start("--read-only", *FSYNC, *PAIR)
        nodes.b.start("--read-only", *PAIR)
        nodes.in_step()
        assert nodes.a.role(False)[0] == 200
        until(lambda: refused(nodes))
        until(lambda: nodes.a.status()["solo"])
        assert nodes.b.status()["lsn"] < nodes.a.status()["lsn"]
