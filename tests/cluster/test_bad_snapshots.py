"""Snapshots that cannot be written or verified: told until one succeeds, and fetched again."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
import tarantool

from tandemq.log.disk import SUFFIX_DAMAGED
from tests.cluster.cluster_nodes import Member, pair, until
from tests.cluster.test_damaged_log import SMALL, flip_bit, put, told
from tests.cluster.test_failures import SHARED


def test_an_older_snapshot_that_turns_bad_is_told_until_the_next_one(tmp_path: Path) -> None:
    with pair(tmp_path, *SMALL) as nodes:
        for _ in range(2):
            put(nodes.a, 5)
            assert nodes.a.connect().call("box.snapshot").data == [b"ok"]
        nodes.in_step()
        nodes.a.end()
        older = min(nodes.a.data.glob("*.snap"))
        older.write_bytes(b"no snapshot at all")
        nodes.a.start()
        put(nodes.a, 1)
        assert nodes.a.connect().call("box.snapshot").data == [b"ok"]
        found = told(nodes.a)
        assert older.name in found["problem"], found
        assert (found["doctor"], "put aside" in found["text"]) == (1, True), found
        assert "tandemq_problems 1" in metrics(nodes.a)
        lines = [line for line in nodes.a.text().splitlines() if " error " in line]
        assert [line for line in lines if "put aside" in line]
        put(nodes.a, 1)
        assert nodes.a.connect().call("box.snapshot").data == [b"ok"]
        assert nodes.a.status()["problem"] is None
        assert "tandemq_problems 0" in metrics(nodes.a)


def test_a_snapshot_that_cannot_be_written_is_told_until_one_can(tmp_path: Path) -> None:
    with pair(tmp_path, *SMALL) as nodes:
        put(nodes.a, 5)
        nodes.in_step()
        lsn = nodes.a.status()["lsn"]
        # Where the file is to be there is something that is no file.
        blocks = [nodes.a.data / f"{at:020d}.snap.inprogress" for at in range(lsn, lsn + 3)]
        for block in blocks:
            block.mkdir()
        with pytest.raises(tarantool.Error):
            nodes.a.connect().call("box.snapshot")
        found = told(nodes.a)
        assert "snapshot failed" in (found["problem"] or ""), found
        assert found["doctor"] == 1
        for block in blocks:
            block.rmdir()
        assert nodes.a.connect().call("box.snapshot").data == [b"ok"]
        assert told(nodes.a)["problem"] is None


def test_a_snapshot_that_arrives_bad_is_put_aside_told_and_fetched_again(tmp_path: Path) -> None:
    flags = (*SHARED, "--set", "wal.segment_bytes=1MiB", "--set", "replication.retain_bytes=1MiB")
    with pair(tmp_path, *flags) as nodes:
        put(nodes.a, 1)
        nodes.in_step()
        nodes.b.end()
        client = nodes.a.connect()
        for number in range(40):
            client.call("queue.tube.jobs:put", b"x" * 100_000)
            if number > 36:
                assert client.call("box.snapshot").data == [b"ok"]
        newest = max(nodes.a.data.glob("*.snap"))
        flip_bit(newest, newest.stat().st_size // 2)
        nodes.b.start("--read-only", wait=False)
        until(lambda: list(nodes.b.data.glob(f"{newest.name}{SUFFIX_DAMAGED}*")))
        until(lambda: "cannot be read" in (nodes.b.status()["problem"] or ""))
        until(lambda: nodes.b.caught_up_with(nodes.a))
        until(lambda: nodes.b.status()["problem"] is None)
        assert "installed the snapshot of a" in nodes.b.text()
        lines = [line for line in nodes.b.text().splitlines() if " error " in line]
        assert [line for line in lines if newest.name in line]
        assert f"older snapshot put aside: {newest.name}" in nodes.a.text()
        nodes.a.switch_to(nodes.b)
        assert nodes.b.connect().call("queue.statistics", "jobs").data[0][b"tasks"][b"ready"] == 41


def metrics(member: Member) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{member.admin_port}/metrics", timeout=30) as one:
        return str(one.read().decode())
