"""Much data in a whole node process, killed and started again: small by default, BIG=1 in full.

`make big` runs the full size once and prints how long loading and starting took.
"""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import tarantool

from tests.node.test_process import Process
from tests.storage import frozen_writer as old

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
BIG = os.environ.get("BIG") == "1"
PAYLOADS = 1_000 if BIG else 60
FILES = 100_000 if BIG else 2_000
TUBES = 10_000 if BIG else 300
SESSIONS = 1_000_000 if BIG else 20_000
LARGE = b"x" * 1_000_000


def restarted(tmp_path: Path, fill: Callable[[tarantool.Connection], None], what: str) -> Process:
    """A node that was filled, wrote two snapshots, was killed, and started again."""
    began = time.monotonic()
    node = Process(tmp_path / "data", "--wal-mode", "write")
    client = node.connect()
    fill(client)
    filled = time.monotonic()
    for _ in range(2):
        assert client.call("box.snapshot").data == [b"ok"]
        client.call("queue.create_tube", f"after{time.monotonic_ns()}", "fifo")
    kept = time.monotonic()
    client.close()
    node.end(signal.SIGKILL)
    again = time.monotonic()
    node = Process(tmp_path / "data", "--wal-mode", "write")
    up = time.monotonic() - again
    print(
        f"{what}: filled in {filled - began:.1f} s, two snapshots in {kept - filled:.1f} s, "
        f"started again in {up:.1f} s"
    )
    return node


def ended(node: Process) -> None:
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(120) == 0
    node.end()


def test_payloads_of_a_megabyte(tmp_path: Path) -> None:
    def fill(client: tarantool.Connection) -> None:
        client.call("queue.create_tube", "t", "fifo")
        for _ in range(0, PAYLOADS, 20):
            client.call("queue.tube.t:put_many", ([[LARGE]] * 20,))

    node = restarted(tmp_path, fill, f"{PAYLOADS} payloads of 1 MB")
    client = node.connect()
    assert client.call("queue.statistics", "t").data[0][b"tasks"][b"total"] == PAYLOADS
    for number in range(0, PAYLOADS, 7):
        assert client.call("queue.tube.t:peek", number).data[0][2] == LARGE
    client.close()
    ended(node)


def test_thousands_of_tubes(tmp_path: Path) -> None:
    def fill(client: tarantool.Connection) -> None:
        for number in range(TUBES):
            client.call("queue.create_tube", f"t{number}", "fifottl")
            client.call(f"queue.tube.t{number}:put", number)

    node = restarted(tmp_path, fill, f"{TUBES} tubes")
    client = node.connect()
    for number in range(0, TUBES, 97):
        assert client.call(f"queue.tube.t{number}:take", 0).data[0][2] == number
    client.close()
    ended(node)


def test_thousands_of_files_in_the_directory(tmp_path: Path) -> None:
    def fill(client: tarantool.Connection) -> None:
        client.call("queue.create_tube", "t", "fifo")
        for number in range(1_000):
            client.call("queue.tube.t:put", number)
        rescue = tmp_path / "data" / "rescue"
        rescue.mkdir(exist_ok=True)
        for number in range(FILES):
            (rescue / f"note{number}.txt").touch()

    node = restarted(tmp_path, fill, f"{FILES} files")
    client = node.connect()
    assert client.call("queue.statistics", "t").data[0][b"tasks"][b"total"] == 1_000
    began = time.monotonic()
    for number in range(1_000):
        assert client.call("queue.tube.t:put", number).data[0][1] == b"r"
    print(f"1000 puts one by one beside them: {time.monotonic() - began:.2f} s")
    client.close()
    ended(node)


def test_thousands_of_sessions(tmp_path: Path) -> None:
    """Detached sessions within their ttr, as a snapshot of an older node holds them."""
    data = tmp_path / "data"
    data.mkdir()
    expires = time.time_ns() // 1000 + 80_000_000_000
    rows = [[number.to_bytes(16, "big"), expires, False] for number in range(SESSIONS)]
    parts = [rows[at : at + 2_000] for at in range(0, SESSIONS, 2_000)]
    blocks = [
        (b"TQc1", [[old.TERM_OP, *old.TERM]]),
        (b"TQr1", [517, [["in_replicaset", True], ["ttr", 86_400]]]),
        *((b"TQr1", [516, part]) for part in parts),
    ]
    (data / "meta").write_bytes(old.meta())
    old.write(data / f"{7:020d}.snap", old.snapshot(7, blocks, SESSIONS + 2))
    config = tmp_path / "node.yaml"
    config.write_text('{"queue": {"in_replicaset": true, "ttr": "1d"}, "wal": {"mode": "write"}}')
    for life in range(2):
        began = time.monotonic()
        node = Process(data, "--config", str(config))
        up = time.monotonic() - began
        client = node.connect()
        began = time.monotonic()
        assert client.call("box.snapshot").data == [b"ok"]
        print(
            f"{SESSIONS} sessions, start {life + 1}: {up:.1f} s, "
            f"snapshot {time.monotonic() - began:.1f} s"
        )
        with urllib.request.urlopen(node.admin + "/metrics", timeout=30) as answer:
            told = answer.read().decode()
        (line,) = [one for one in told.splitlines() if 'sessions{kind="detached"}' in one]
        assert float(line.rpartition(" ")[2]) == SESSIONS
        client.close()
        node.end(signal.SIGKILL)
