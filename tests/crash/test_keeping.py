"""Snapshots of a whole node process: large tasks, and losing the newest snapshot loses nothing."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tarantool

from tests.node.test_process import TANDEMQ, Process

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
LARGE = b"x" * 1_000_000
#: More than the 256 MiB that a block could have when it was read.
LARGE_COUNT = 280


def snapshots(data: Path) -> list[Path]:
    return sorted(data.glob("*.snap"))


def fill(client: tarantool.Connection, count: int) -> None:
    for _ in range(0, count, 20):
        client.call("queue.tube.t:put_many", ([[LARGE]] * 20,))


def peek_all(node: Process, count: int) -> None:
    client = node.connect()
    for number in range(count):
        assert client.call("queue.tube.t:peek", number).data[0][2] == LARGE
    with pytest.raises(tarantool.DatabaseError, match="not found"):
        client.call("queue.tube.t:peek", count)
    client.close()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_large_tasks_come_back_from_a_snapshot(tmp_path: Path, ending: int) -> None:
    """By call and kill -9; with wal.mode none by an orderly end, too."""
    mode = "none" if ending == signal.SIGTERM else "write"
    node = Process(tmp_path / "data", "--wal-mode", mode)
    client = node.connect()
    client.call("queue.create_tube", "t", "fifo")
    client.call("queue.create_tube", "small", "fifo")
    fill(client, LARGE_COUNT)
    if ending == signal.SIGKILL:
        for _ in range(2):
            assert client.call("box.snapshot").data == [b"ok"]
            client.call("queue.tube.small:put", b"x")
    client.close()
    node.process.send_signal(ending)
    node.process.wait(120)
    node.end()
    again = Process(tmp_path / "data", "--wal-mode", mode)
    assert "snapshot 0" in again.text()
    peek_all(again, LARGE_COUNT)
    assert again.end() == 0


def wound(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("loses", [Path.unlink, wound], ids=["deleted", "damaged"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_losing_the_newest_snapshot_loses_nothing(tmp_path: Path, count: int, loses: Any) -> None:
    flags = ("--wal-mode", "write", "--config", str(tmp_path / "node.yaml"))
    (tmp_path / "node.yaml").write_text(
        json.dumps({"wal": {"segment_bytes": "64KiB"}, "snapshot": {"keep": 1}})
    )
    data = tmp_path / "data"
    node = Process(data, *flags)
    client = node.connect()
    client.call("queue.create_tube", "t", "fifo")
    for number in range(count):
        for _ in range(30):
            client.call("queue.tube.t:put", b"y" * 10_000)
        assert client.call("box.snapshot").data == [b"ok"]
        assert len(snapshots(data)) == min(number + 1, 2)
    client.call("queue.tube.t:put", b"last")
    client.close()
    node.end(signal.SIGKILL)
    first = sorted(data.glob("*.wal"))[0].name
    assert (first == f"{1:020d}.wal") == (count < 2)
    loses(snapshots(data)[-1])
    again = Process(data, *flags)
    client = again.connect()
    counts = client.call("queue.statistics", "t").data[0]
    assert counts[b"tasks"][b"total"] == 30 * count + 1
    assert client.call("box.snapshot").data == [b"ok"]
    client.close()
    assert again.end() == 0
    told = subprocess.run(
        [TANDEMQ, "log", "verify", str(data)], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_a_task_that_is_too_large_is_refused_by_the_setting(tmp_path: Path) -> None:
    node = Process(tmp_path / "data")
    client = node.connect()
    client.call("queue.create_tube", "t", "fifo")
    with pytest.raises(tarantool.DatabaseError, match="payload_bytes_max"):
        client.call("queue.tube.t:put", b"x" * 20_000_000)
    assert client.call("queue.statistics", "t").data[0][b"tasks"][b"total"] == 0
    client.close()
    assert node.end() == 0


def test_settings_that_could_not_be_kept_are_refused() -> None:
    told = subprocess.run(
        [TANDEMQ, "config", "check", "--set", "limits.frame_bytes_max=512MiB"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode != 0
    assert "limits.frame_bytes_max" in told.stdout + told.stderr
    assert "255MiB" in told.stdout + told.stderr
