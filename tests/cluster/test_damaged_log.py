"""A log that cannot be read where a replica needs it: a snapshot instead, and everybody says so."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster_nodes import TANDEMQ, Member, Pair, pair, until

SMALL = ("--set", "wal.segment_bytes=64KiB", "--set", "snapshot.every_bytes=null")


def put(member: Member, count: int) -> None:
    client = member.connect()
    client.call("queue.create_tube", "jobs", "fifo", {"if_not_exists": True})
    for _ in range(count):
        client.call("queue.tube.jobs:put", b"x" * 8_000)


def flip_bit(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0] ^ 1
        opened.seek(at)
        opened.write(bytes((byte,)))


def damage_behind(nodes: Pair, at: int) -> Path:
    """Flip a bit of a sealed segment of a that b does not have yet."""
    behind = nodes.b.status()["lsn"]
    nodes.b.end()
    put(nodes.a, 60)
    segments = sorted(nodes.a.data.glob("*.wal"))
    chosen = next(file for file in segments if int(file.stem) > behind)
    assert chosen != segments[-1]
    flip_bit(chosen, at)
    return chosen


def doctor(member: Member) -> tuple[int, str]:
    words = [TANDEMQ, "doctor", f"127.0.0.1:{member.admin_port}"]
    told = subprocess.run(words, capture_output=True, timeout=60, check=False, text=True)
    return told.returncode, " ".join(told.stdout.split())


def told(member: Member) -> dict[str, Any]:
    """What a node says of its troubles, everywhere it says it."""
    problem = member.status()["problem"]
    code, text = doctor(member)
    return {"problem": problem, "doctor": code, "text": text}


# Within a body; in the length of a header, where nothing that follows can be found any more.
@pytest.mark.parametrize("at", [1_024 + 36 + 500, 1_024 + 4])
def test_a_damaged_sealed_segment_of_the_master_is_bootstrapped_around(
    tmp_path: Path, at: int
) -> None:
    with pair(tmp_path, *SMALL) as nodes:
        put(nodes.a, 5)
        nodes.in_step()
        damaged = damage_behind(nodes, at)
        nodes.b.start("--read-only")
        nodes.in_step()
        assert "installed the snapshot of a" in nodes.b.text()
        assert nodes.b.status()["rescue_files"] == 0
        until(lambda: nodes.b.status()["problem"] is None)
        assert nodes.b.ask("/readiness")[0] == 200
        # The master serves on, and says what is wrong until that part of the log is trimmed.
        found = told(nodes.a)
        assert damaged.name in found["problem"], found
        assert (found["doctor"], damaged.name in found["text"]) == (1, True), found
        assert nodes.a.ask("/readiness")[0] == 200
        errors = [line for line in nodes.a.text().splitlines() if " error " in line]
        assert any(damaged.name in line for line in errors)
        # b takes over with everything.
        nodes.a.end()
        assert nodes.b.role(False, force=True)[0] == 200
        assert nodes.b.connect().call("queue.statistics", "jobs").data[0][b"tasks"][b"ready"] == 65


def test_nodes_in_conflict_say_so_until_an_operator_decides(tmp_path: Path) -> None:
    with pair(tmp_path) as nodes:
        put(nodes.a, 3)
        nodes.in_step()
        nodes.a.end()
        assert nodes.b.role(False, force=True)[0] == 200
        put(nodes.b, 1)
        nodes.b.end()
        nodes.a.start(wait=False)
        until(lambda: asked(nodes.a))
        assert nodes.a.role(False, force=True)[0] == 200
        put(nodes.a, 2)
        nodes.b.start("--read-only")
        # a steps down as soon as it hears of the other term.
        until(lambda: nodes.a.status()["problem"])
        found = told(nodes.a)
        assert "conflict: b opened term 2, too" in found["problem"], found
        assert found["doctor"] == 1
        assert " error   conflict: b opened term 2, too" in nodes.a.text()
        for node in (nodes.a, nodes.b):
            code, ready = node.ask("/readiness")
            assert code == 503
            assert ready["reason"]


def asked(member: Member) -> bool:
    """Whether the node answers by now."""
    with contextlib.suppress(OSError):
        return bool(member.status())
    return False


def test_a_node_with_a_damaged_log_gets_the_range_from_its_peer(tmp_path: Path) -> None:
    with pair(tmp_path, *SMALL) as nodes:
        put(nodes.a, 65)
        nodes.in_step()
        nodes.a.end()
        segments = sorted(nodes.a.data.glob("*.wal"))
        flip_bit(segments[2], 1_024 + 36 + 500)
        # While nobody can send it, the node stands read-only and says why.
        nodes.b.end()
        nodes.a.start(wait=False)
        until(lambda: asked(nodes.a))
        found = told(nodes.a)
        assert "can no longer be read here" in found["problem"], found
        assert found["doctor"] == 1
        assert nodes.a.status()["state"] != "RUNNING"
        assert nodes.a.ask("/readiness")[0] == 503
        nodes.b.start("--read-only")
        # Its configuration says writable: it serves once everything is here.
        until(lambda: nodes.a.status()["state"] == "RUNNING", 30)
        nodes.in_step()
        assert nodes.a.status()["problem"] is None
        assert list(nodes.a.data.glob("*.damaged"))
        assert nodes.a.connect().call("queue.statistics", "jobs").data[0][b"tasks"][b"ready"] == 65


def test_without_a_peer_a_damaged_log_is_refused_by_name(tmp_path: Path) -> None:
    with pair(tmp_path, *SMALL) as nodes:
        put(nodes.a, 40)
        nodes.a.end()
        segment = sorted(nodes.a.data.glob("*.wal"))[1]
        flip_bit(segment, 1_024 + 36 + 500)
        before = {file: file.read_bytes() for file in nodes.a.data.glob("*.wal*")}
        nodes.a.peers = []
        nodes.a.start(wait=False)
        assert nodes.a.process is not None
        assert nodes.a.process.wait(30) == 1
        assert segment.name in nodes.a.text()
        assert {file: file.read_bytes() for file in nodes.a.data.glob("*.wal*")} == before
