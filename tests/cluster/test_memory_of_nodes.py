"""Real nodes under a small `memory.max`: puts are refused, all else goes on, and puts come back."""

from __future__ import annotations

import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

from tarantool.error import DatabaseError

from tests.cluster.cluster_nodes import Member, Pair, until

TUBE = "queue.tube.t"
MIB = 1 << 20
PAYLOAD = b"x" * 100_000
BATCH = 20
#: Above what a node needs for itself.
HIGH, MAX = 170, 200


def metric(member: Member, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{member.admin_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def refused(client: Any) -> str:
    """Put until puts are refused; what the last one was told."""
    for _ in range(4_000):
        try:
            client.call(f"{TUBE}:put_many", [[[PAYLOAD]] * BATCH])
        except DatabaseError as error:
            found = error.args[1]
            return found.decode() if isinstance(found, bytes) else str(found)
    raise AssertionError("puts were never refused")


def accepted(client: Any) -> bool:
    try:
        client.call(f"{TUBE}:put", ["after"])
    except DatabaseError:
        return False
    return True


def test_a_full_node_refuses_puts_and_serves_everything_else(tmp_path: Path) -> None:
    bounds = ("--set", f"memory.high={HIGH}MiB", "--set", f"memory.max={MAX}MiB")
    pair = Pair(tmp_path, *bounds).start()
    try:
        a, b = pair.a, pair.b
        client = a.connect()
        client.call("queue.create_tube", ["t", "fifo"])
        # The node looks several times a second: what comes faster is told of as full at once.
        for _ in range(4_000):
            if "above memory.high" in a.text():
                break
            client.call(f"{TUBE}:put_many", [[[PAYLOAD]] * BATCH])
            time.sleep(0.1)
        answer = refused(client)
        assert f"memory.max {MAX * MIB}, {MAX}MiB" in answer
        assert "above memory.high" in a.text()
        assert "puts are refused" in a.text()
        assert metric(a, "tandemq_memory_state") == 2
        assert metric(a, "tandemq_memory_bytes") >= MAX * MIB * 0.95
        tasks = client.call("queue.statistics", ["t"]).data[0][b"tasks"][b"total"]
        # Reads, snapshots and the replica, which is as full as its master.
        assert client.call(f"{TUBE}:peek", [0]).data[0][0] == 0
        assert client.call("box.snapshot").data[0] in ("ok", b"ok")
        pair.in_step()
        # Killed at the limit, it starts again with everything, and works the backlog off.
        a.end(signal.SIGKILL)
        a.start("--read-only", wait=True)
        until(lambda: a.status()["lsn"] == b.status()["lsn"])
        code, report = b.role(False, force=True)
        assert code == 200, report
        worker = b.connect()
        done = 0
        while rows := worker.call(f"{TUBE}:take_many", [100, 0]).data[0]:
            worker.call(f"{TUBE}:ack_many", [[row[0] for row in rows]])
            done += len(rows)
        assert done == tasks
        until(lambda: accepted(worker), 30, 0.2)
        time.sleep(0.5)
        assert metric(b, "tandemq_memory_state") < 2
        pair.in_step()
    finally:
        pair.stop()
