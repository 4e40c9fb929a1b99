"""The backup of docs/operations.md: taken under load, restored, compared with what was told."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import tarantool

from tandemq_server.cli import main
from tests.cluster.cluster_nodes import Member, Pair, free_ports, pair, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def run(*words: str | Path) -> tuple[int, str, str]:
    """Exit code and output of a command, in this process."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


class Load:
    """Producers and workers of one tube; what was acknowledged, as far as they were told."""

    def __init__(self, node: Member, tube: str) -> None:
        self.node, self.tube = node, tube
        self.put: dict[int, int] = {}
        self.acked: set[int] = set()
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=one) for one in (self._produce, self._work)]

    def _produce(self) -> None:
        client = self.node.connect(encoding="utf-8")
        for number in range(10_000_000):
            if self.ended.is_set():
                return
            task = client.call(f"queue.tube.{self.tube}:put", {"n": number}).data[0]
            self.put[task[0]] = number

    def _work(self) -> None:
        client = self.node.connect(encoding="utf-8")
        while not self.ended.is_set():
            rows = client.call(f"queue.tube.{self.tube}:take", 0.1).data
            # Every third stays.
            if rows and rows[0] and rows[0][0] % 3:
                client.call(f"queue.tube.{self.tube}:ack", rows[0][0])
                self.acked.add(rows[0][0])

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()


@contextmanager
def alone(data: Path) -> Iterator[tarantool.Connection]:
    """A client of a node without peers that runs from `data`."""
    port, admin = free_ports(2)
    node = Member(data.parent, data.name, port, admin, [])
    node.start("--wal-mode", "fsync")
    client = node.connect(encoding="utf-8", fetch_schema=True)
    try:
        yield client
    finally:
        client.close()
        node.end()


def tasks_of(client: tarantool.Connection, tube: str) -> dict[int, Any]:
    space = client.select("_queue", [tube]).data[0][2]
    return {row[0]: row[-1] for row in client.select(space, []).data}


def test_a_backup_under_load_holds_all_that_was_acknowledged(nodes: Pair, tmp_path: Path) -> None:
    tube = "kept"
    nodes.a.connect().call("queue.create_tube", tube, "fifo")
    backup, data = tmp_path / "backup", tmp_path / "restored"
    with Load(nodes.a, tube) as load:
        until(lambda: len(load.put) >= 300 and len(load.acked) >= 100)
        put, acked = dict(load.put), set(load.acked)
        code, out, err = run("backup", nodes.a.data, backup, "--json")
        assert code == 0, err
        seen_after = len(load.put)
        until(lambda: len(load.put) > seen_after)
    told = json.loads(out)
    assert told["last_lsn"] >= len(put) + len(acked)
    code, out, err = run("restore", backup, data)
    assert code == 0, err
    assert f"LSN {told['last_lsn']} of term {told['term']}" in out
    assert f"of cluster {nodes.a.status()['cluster_id']}" in err
    assert "start every peer with an empty directory" in err
    with alone(data) as client:
        found = tasks_of(client, tube)
        missing = [task for task in put if task not in found and task not in load.acked]
        assert missing == []
        assert all(found[task] == {"n": load.put[task]} for task in found if task in load.put)
        back = acked & found.keys()
        assert back == set(), "acknowledged before the backup began"
        assert client.call(f"queue.tube.{tube}:put", "after").data[0][1] == "r"


def test_from_the_replica_and_as_of_an_earlier_record(nodes: Pair, tmp_path: Path) -> None:
    client = nodes.a.connect()
    client.call("queue.create_tube", "steps", "fifo")
    lsns = []
    for number in range(20):
        client.call("queue.tube.steps:put", number)
        lsns.append(nodes.a.status()["lsn"])
        if number == 2:
            nodes.in_step()
            nodes.b.ask("/v1/snapshot", {})
    nodes.in_step()
    backup = tmp_path / "backup"
    there = ("--snapshot", "--admin", f"127.0.0.1:{nodes.b.admin_port}")
    code, out, err = run("backup", nodes.b.data, backup, "--history", *there)
    assert code == 0, err
    assert f"snapshot of LSN {lsns[-1]} written" in err
    assert f"{backup}: can be restored to any point from LSN {lsns[2]} on" in out
    assert run("log", "verify", backup)[0] == 0
    # As written: restored where the master's directory was, the other node empty.
    with pair(tmp_path / "ten", start=False) as again:
        code, out, err = run("restore", backup, again.a.data, "--until-lsn", str(lsns[9]))
        assert code == 0, err
        assert "10 records left out" in out
        again.start()
        for member in (again.a, again.b):
            old = member.connect(encoding="utf-8", fetch_schema=True)
            assert sorted(tasks_of(old, "steps")) == list(range(10))
    rows = [json.loads(line) for line in run("log", "dump", backup, "--json")[1].splitlines()]
    moment = next(row["time"] for row in rows if row["lsn"] == lsns[4])
    code, out, err = run("restore", backup, tmp_path / "five", "--until-time", moment, "--json")
    assert code == 0, err
    assert json.loads(out)["last_lsn"] == lsns[4]


def test_what_is_there_is_never_overwritten(nodes: Pair, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    assert run("backup", nodes.a.data, backup)[0] == 0
    before = {file.name: file.read_bytes() for file in backup.iterdir() if file.is_file()}
    for words in (("backup", nodes.a.data, backup), ("restore", backup, nodes.a.data),
                  ("restore", backup, backup)):  # fmt: skip
        code, out, err = run(*words)
        assert (code, out) == (1, "")
        assert "is not empty" in err
        assert "nothing is overwritten" in err
    assert {f.name: f.read_bytes() for f in backup.iterdir() if f.is_file()} == before
    assert nodes.a.status()["state"] == "RUNNING"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("backup", "{here}/none", "{here}/x"), 1, "No such file or directory"),
        (("restore", "{here}", "{here}/x"), 1, "is no backup, or an unfinished one"),
        (("restore", "{here}", "{here}/x", "--until-time", "noon"), 2, "noon is not a time"),
        (
            ("backup", "{here}", "{here}/x", "--snapshot", "--admin", "127.0.0.1:1"),
            3,
            "is the node",
        ),
    ],
)
def test_mistakes_are_named_and_leave_nothing(
    tmp_path: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    got, _, err = run(*(word.format(here=tmp_path) for word in words))
    assert got == code
    assert text in err
    assert not (tmp_path / "x").exists()
