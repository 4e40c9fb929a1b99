"""The backup of docs/operations.md: a copy of a serving replica's directory starts as a node."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest
from cluster_nodes import Member, Pair, free_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_a_copy_taken_while_serving_holds_what_was_acknowledged(
    nodes: Pair, tmp_path: Path
) -> None:
    client = nodes.a.connect()
    client.call("queue.create_tube", "kept", "fifo")
    for number in range(300):
        client.call("queue.tube.kept:put", number)
    nodes.in_step()
    ended = threading.Event()

    def more() -> None:
        other = nodes.a.connect()
        while not ended.is_set():
            other.call("queue.tube.kept:put", "more")

    busy = threading.Thread(target=more)
    busy.start()
    try:
        code, answer = nodes.b.ask("/v1/snapshot", {})
        assert code == 200
        assert answer["lsn"] >= 300
        archive = tmp_path / "b.tar"
        done = subprocess.run(
            [
                *("tar", "--create", "--warning=no-file-changed", "--file", str(archive)),
                *("--directory", str(nodes.b.data.parent), "b"),
            ],
            check=False,
        )
        assert done.returncode in (0, 1), "1: a file grew while it was read"
    finally:
        ended.set()
        busy.join()
    restored = tmp_path / "restored"
    restored.mkdir()
    extract = ["tar", "--extract", "--file", str(archive), "--directory", str(restored)]
    subprocess.run([*extract, "--transform", "s,^b,a,"], check=True)
    port, admin = free_ports(2)
    node = Member(restored, "a", port, admin, [])
    node.start()
    try:
        found = node.connect(encoding="utf-8")
        assert found.call("queue.statistics", "kept").data[0]["tasks"]["total"] >= 300
        assert found.call("queue.tube.kept:peek", 299).data[0] == [299, "r", 299]
        assert found.call("queue.tube.kept:put", "after").data[0][1] == "r"
    finally:
        found.close()
        node.end()
