"""A whole node process: roles by call and by admin API, a log that fails, restarts, snapshots."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tarantool

from demo.node_process import TANDEMQ, NodeProcess

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


class Process(NodeProcess):
    """On free ports, and running."""

    def __init__(self, data: Path, *flags: str, file_bytes_max: int | None = None) -> None:
        def limit() -> None:
            if file_bytes_max is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))

        words = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", str(data)]
        words += ["--guest", "all", *flags]
        super().__init__(data.parent / f"{data.name}.log", *words, before=limit)
        self.start()
        self.port = int(self.address.rpartition(":")[2])

    @property
    def admin(self) -> str:
        line = [line for line in self.text().splitlines() if "admin API on" in line][-1]
        return "http://" + line.rpartition(" ")[2]

    def connect(self) -> tarantool.Connection:
        return tarantool.Connection("127.0.0.1", self.port, fetch_schema=False, encoding=None)

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            self.admin + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method="GET" if body is None else "PUT" if "read_only" in path else "POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Process]:
    running = Process(tmp_path / "data", "--wal-mode", "write")
    yield running
    if running.alive:
        assert running.end() == 0


def test_flips_by_admin_and_by_call_walk_the_states(node: Process) -> None:
    client = node.connect()
    client.call("queue.create_tube", "t", "fifo")
    assert client.call("queue.state").data == [b"RUNNING"]
    status, flip = node.ask("/v1/read_only", {"read_only": True})
    assert (status, flip["state"]) == (200, "WAITING")
    assert node.ask("/primary")[0] == 503
    with pytest.raises(tarantool.DatabaseError, match="read-only instance"):
        client.call("queue.tube.t:put", 1)
    client.call("box.cfg", {"read_only": False})
    assert client.call("queue.tube.t:put", 1).data == [[0, b"r", 1]]
    assert node.ask("/primary")[0] == 200
    _, told = node.ask("/v1/status")
    assert told["term"]["number"] == 2
    walked = [made["to_state"] for made in told["transitions"]]
    assert walked == ["STARTUP", "RUNNING", "ENDING", "WAITING", "STARTUP", "RUNNING"]
    assert all(made["reason"] for made in told["transitions"])
    client.close()


def test_waiting_takes_are_told_at_once_when_the_node_stops_serving(node: Process) -> None:
    client, waiter = node.connect(), node.connect()
    client.call("queue.create_tube", "t", "fifo")
    import threading

    told: list[str] = []

    def wait() -> None:
        try:
            waiter.call("queue.tube.t:take", 30)
        except tarantool.DatabaseError as error:
            told.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    while not _waiters(client):
        pass
    assert node.ask("/v1/read_only", {"read_only": True})[0] == 200
    thread.join(5)
    assert told
    assert "read-only instance" in told[0]
    waiter.close()
    client.close()


def _waiters(client: tarantool.Connection) -> bool:
    rows = tarantool.Connection("127.0.0.1", client.port, encoding=None)
    try:
        return bool(rows.select("_queue_consumers").data)
    finally:
        rows.close()


def test_read_only_from_the_start_and_tasks_kept_over_flips(tmp_path: Path) -> None:
    first = Process(tmp_path / "data", "--wal-mode", "fsync")
    client = first.connect()
    client.call("queue.create_tube", "t", "fifottl")
    client.call("queue.tube.t:put", "x", {"pri": 1})
    client.close()
    assert first.end() == 0
    second = Process(tmp_path / "data", "--wal-mode", "fsync", "--read-only")
    client = second.connect()
    assert client.call("queue.state").data == [b"INIT"]
    assert client.call("box.info").data[0][b"status"] == b"running"
    assert client.call("queue.tube.t:peek", 0).data == [[0, b"r", b"x"]]
    assert client.call("queue.statistics", "t").data[0][b"tasks"][b"ready"] == 1
    assert second.ask("/readiness")[0] in (200, 503)
    assert second.ask("/v1/read_only", {"read_only": False})[1]["state"] == "RUNNING"
    assert client.call("queue.tube.t:take", 0).data == [[0, b"t", b"x"]]
    client.close()
    assert second.end() == 0


def test_a_log_that_cannot_be_written_ends_the_node_and_loses_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    node = Process(data, "--wal-mode", "write", file_bytes_max=100_000)
    client = node.connect()
    client.call("queue.create_tube", "t", "fifo")
    acknowledged = 0
    with pytest.raises((tarantool.error.NetworkError, tarantool.DatabaseError)):
        for _ in range(10_000):
            client.call("queue.tube.t:put", "x" * 100)
            acknowledged += 1
    client.close()
    assert node.process.wait(10) == 5
    assert node.process.stdout is not None
    node.process.stdout.close()
    assert "nothing more is acknowledged" in node.text()
    assert acknowledged > 100
    again = Process(data, "--wal-mode", "write")
    client = again.connect()
    total = client.call("queue.statistics", "t").data[0][b"tasks"][b"total"]
    assert acknowledged <= total <= acknowledged + 1
    client.close()
    assert again.end() == 0


def test_snapshot_by_call_and_by_admin_then_restart(node: Process, tmp_path: Path) -> None:
    client = node.connect()
    client.call("queue.create_tube", "t", "utube")
    client.call("queue.tube.t:put_many", [[[number, {"utube": "a"}] for number in range(50)]])
    assert client.call("box.snapshot").data == [b"ok"]
    client.call("queue.tube.t:put", "after")
    status, body = node.ask("/v1/snapshot", {})
    assert status == 200, body
    client.call("queue.tube.t:delete", 0)
    client.close()
    assert node.end(signal.SIGKILL) == -9
    again = Process(tmp_path / "data", "--wal-mode", "write")
    client = again.connect()
    assert "snapshot 0000" in again.text()
    assert client.call("queue.statistics", "t").data[0][b"tasks"][b"total"] == 50
    assert client.call("queue.tube.t:put", "next").data[0][0] == 51
    client.close()
    assert again.end() == 0


def test_a_second_process_on_the_same_directory_is_refused(node: Process, tmp_path: Path) -> None:
    done = subprocess.run(
        [TANDEMQ, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")],
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert str(node.process.pid) in done.stderr.decode()


def test_sigterm_under_waiting_clients_ends_within_five_seconds(node: Process) -> None:
    import time

    client = node.connect()
    client.call("queue.create_tube", "t", "fifo")
    began = time.monotonic()
    assert node.end() == 0
    assert time.monotonic() - began < 5
    client.close()
