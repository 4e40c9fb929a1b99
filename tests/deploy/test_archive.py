"""The archive of docs/operations.md: shipped under load, both disks lost, restored to a moment."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import tarantool

from demo.node_process import TANDEMQ, NodeProcess
from tandemq.log.meta import open_meta
from tandemq_server.storage.files import FileDisk
from tests import object_store
from tests.cluster.cluster_nodes import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with object_store.bucket() as place:
        yield place


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A command, with keys that moto takes."""
    done = subprocess.run(
        [TANDEMQ, *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | object_store.KEYS,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def node_at(home: Path, directory: Path) -> NodeProcess:
    words = ("--listen", "127.0.0.1:0", "--data-dir", str(directory), "--wal-mode", "fsync")
    limits = ("--set", "wal.segment_bytes=64KiB", "--guest", "all")
    return NodeProcess(home / "node.log", *words, *limits).start()


def connect(node: NodeProcess) -> tarantool.Connection:
    host, _, port = node.address.rpartition(":")
    return tarantool.connect(host, int(port), encoding="utf-8")


class Producer(threading.Thread):
    """Puts numbers one after the other; `acknowledged` grows as they are answered."""

    def __init__(self, node: NodeProcess) -> None:
        super().__init__()
        self.client = connect(node)
        self.client.call("queue.create_tube", "jobs", "fifo", {"if_not_exists": True})
        self.acknowledged: list[int] = []
        self.ended = threading.Event()

    def run(self) -> None:
        number = 0
        with contextlib.suppress(tarantool.DatabaseError):  # until the node is killed
            while not self.ended.is_set():
                self.client.call("queue.tube.jobs:put", {"n": number, "fill": "x" * 500})
                self.acknowledged.append(number)
                number += 1


def numbers_in(home: Path, directory: Path) -> set[int]:
    """What a node that is started on a restored directory hands out."""
    node = node_at(home, directory)
    found: set[int] = set()
    try:
        with contextlib.closing(connect(node)) as client:
            while (rows := client.call("queue.tube.jobs:take", 0).data) and rows[0]:
                found.add(rows[0][2]["n"])
        return found
    finally:
        node.kill()


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_what_was_acknowledged_before_a_round_outlives_the_disk(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    data = tmp_path / "data"
    url = str(tmp_path / "a") if kind == "folder" else request.getfixturevalue("s3") % "prod/a"
    node = node_at(tmp_path, data)
    load = Producer(node)
    load.start()
    before: list[tuple[int, datetime]] = []
    try:
        for wanted in (150, 400, 700):
            until(lambda wanted=wanted: len(load.acknowledged) > wanted, seconds=60)
            before.append((len(load.acknowledged), datetime.now(UTC)))
            shipped = json.loads(run("archive", "ship", data, url, "--json").stdout)
            assert shipped["shipped_files"]
    finally:
        node.kill()
        load.ended.set()
        load.join()
        load.client.close()
    for path in sorted(data.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    told = run("archive", "lines", url, "--json").stdout.splitlines()
    assert len(told) == 1, "one history, one line"
    run("restore", url, tmp_path / "last")
    count, _ = before[-1]
    assert numbers_in(tmp_path, tmp_path / "last") >= set(range(count))
    count, moment = before[0]
    run("restore", url, tmp_path / "then", "--until-time", moment.isoformat())
    found = numbers_in(tmp_path, tmp_path / "then")
    # What was acknowledged by then, and one at most that was on its way.
    assert set(range(count)) <= found <= set(range(count + 1))


def test_shipping_for_ever_goes_on_after_a_store_that_was_away(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "archive"
    node = node_at(tmp_path, data)
    client = connect(node)
    client.call("queue.create_tube", "jobs", "fifo")
    url.write_text("not a folder")
    words = [TANDEMQ, "archive", "ship", str(data), str(url), "--every", "0.1", "--json"]
    told = tmp_path / "told"
    with told.open("w") as out:
        shipping = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        until(lambda: "not shipped" in told.read_text(), seconds=60)
        url.unlink()
        client.call("queue.tube.jobs:put", 1)
        until(lambda: list(url.glob("line-*/manifest-*.json")), seconds=60)
        client.call("queue.tube.jobs:put", 2)

        def reached() -> bool:
            found = run("archive", "lines", url, "--json").stdout
            return bool(found) and json.loads(found)["last_lsn"] >= 4

        until(reached, seconds=60)
    finally:
        shipping.terminate()
        shipping.wait()
        client.close()
        node.kill()


def test_a_directory_without_log_and_snapshot_is_one_line_of_error(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    disk = FileDisk(tmp_path / "data")
    open_meta(disk, bytes(16), bytes(range(16)), 0)
    disk.release()
    words = [TANDEMQ, "archive", "ship", str(tmp_path / "data"), str(tmp_path / "archive")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    told = f"{tmp_path / 'data'} holds neither a segment nor a snapshot yet"
    assert (ended.returncode, ended.stdout, ended.stderr.strip()) == (1, "", f"error: {told}")
    assert run("archive", "lines", tmp_path / "archive").stdout == ""
