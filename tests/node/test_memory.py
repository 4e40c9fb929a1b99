"""Bounds on memory: what there is, when puts are refused and when they go on, who may wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tandemq_server.config import Settings
from tandemq_server.config.load import ConfigError
from tandemq_server.config.units import parse_share
from tandemq_server.engine import batches, finish, pause
from tandemq_server.engine.clients import PENDING
from tandemq_server.engine.tube import EngineTube
from tandemq_server.node.loop.memory import (
    FULL,
    HIGH,
    OK,
    MemoryWatch,
    bound,
    give_back,
    total_bytes,
    used_bytes,
)
from tests.engine.engine_bench import Bench, assert_replica_agrees, text
from tests.queue15 import queue15_bench
from tests.xqueue import xqueue_bench

MIB = 1 << 20
HUGE_V1 = 9223372036854771712
REFUSED = (
    "Memory of the node is full (memory.max 104857600, 100MiB): no put until tasks are "
    "acknowledged or deleted, or the setting is raised"
)


class Watched:
    """A bench whose memory a test says."""

    def __init__(self, bench: Bench | None = None) -> None:
        self.bench = bench or Bench()
        if bench is None:
            self.bench.start()
        self.used = 10 * MIB
        self.lines: list[tuple[str, bool]] = []
        self.watch = MemoryWatch(
            self.bench.engine,
            str(80 * MIB),
            str(100 * MIB),
            lambda line: self.lines.append((line, True)),
            lambda line: self.lines.append((line, False)),
            lambda: self.used,
            1 << 30,
        )

    def use(self, mib: int) -> bool:
        self.used = mib * MIB
        woke = self.watch.look()
        self.bench.engine.wake()
        self.bench.collect()
        return woke

    def tube(self, kind: str = "fifo", **options: Any) -> EngineTube:
        return self.bench.create(f"t{len(self.bench.engine.tubes)}", kind, **options)

    def put(self, tube: EngineTube, opts: Any = None, who: Any = None) -> Any:
        return self.bench.call(tube.put, who or self.bench.worker(), 7, b"x", opts)


@pytest.fixture
def node() -> Watched:
    return Watched()


def test_marks_are_left_only_well_below_them(node: Watched) -> None:
    seen = []
    for mib in (79, 80, 77, 76, 75, 99, 100, 96, 95, 94, 77, 75, 100):
        node.use(mib)
        seen.append(node.watch.state)
    assert seen == [OK, HIGH, HIGH, HIGH, OK, HIGH, FULL, FULL, FULL, HIGH, HIGH, OK, FULL]
    assert [warns for _, warns in node.lines] == [True, False, True, True, False, False, True]
    assert node.lines[0][0] == (
        "80 MiB of memory in use, above memory.high (80 MiB); at memory.max puts will be refused"
    )
    assert "puts are refused" in node.lines[3][0]


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "limfifottl", "utube", "utubettl"])
def test_puts_are_refused_and_all_else_goes_on(node: Watched, kind: str) -> None:
    tube = node.tube(kind, **({"capacity": 100} if kind == "limfifottl" else {}))
    bench, worker = node.bench, node.bench.worker()
    for number in range(5):
        opts = {"utube": str(number)} if kind.startswith("utube") else None
        assert node.put(tube, opts)[1] == "r"
    node.use(101)
    logged = len(bench.log)
    assert text(node.put(tube)) == REFUSED
    assert text(node.put(tube, {"key": "k"})) == REFUSED
    assert text(bench.call(batches.put_many, tube, worker, [(b"x", None)])) == REFUSED
    assert len(bench.log) == logged
    first = bench.call(tube.take, worker, 0, 0)[0]
    second = bench.call(tube.take, worker, 0, 0)[0]
    third = bench.call(tube.take, worker, 0, 0)[0]
    puts = [(tube, b"y", None)]
    assert REFUSED in text(bench.call(finish.finish, tube, worker, first, puts))
    assert bench.call(finish.finish, tube, worker, first, []) == []
    assert bench.call(tube.release, worker, second)[1] == "r"
    assert bench.call(tube.bury, worker, third)[1] == "!"
    assert bench.call(tube.delete, worker, second)[1] == "-"
    assert tube.statistics()["tasks"]["total"] == 3
    assert_replica_agrees(bench)
    assert not node.use(96)
    assert text(node.put(tube)) == REFUSED
    assert node.use(94)
    assert node.put(tube)[1] == "r"


def test_a_put_that_came_again_is_answered_all_the_same(node: Watched) -> None:
    tube = node.tube(capacity=10, overflow="wait")
    first = node.put(tube, {"key": "k"})
    node.use(101)
    assert node.put(tube, {"key": "k"})[0] == first[0]


@pytest.mark.parametrize(
    ("kind", "options"),
    [("limfifottl", {"capacity": 10}), ("fifo", {"capacity": 10, "overflow": "wait"})],
)
def test_who_may_wait_for_room_waits_for_memory(
    node: Watched, kind: str, options: dict[str, Any]
) -> None:
    tube, worker = node.tube(kind, **options), node.bench.worker()
    node.use(101)
    assert node.put(tube, {"timeout": 60}, worker) is PENDING
    node.use(97)
    assert not worker.told
    # One that does not wait is told why, not only that there is no room.
    assert text(node.put(tube)) == REFUSED
    node.use(94)
    assert [outcome[1] for _, outcome in worker.told] == ["r"]
    assert tube.driver is tube.inner


def test_a_tube_that_rejects_says_which_limit_it_is(node: Watched) -> None:
    tube = node.tube(capacity=1, overflow="reject")
    node.use(101)
    assert text(node.put(tube)) == REFUSED
    node.use(50)
    node.put(tube)
    assert "is full: 1 tasks" in text(node.put(tube))


def test_tubes_made_or_paused_meanwhile_obey_both(node: Watched) -> None:
    node.use(101)
    tube = node.tube()
    assert text(node.put(tube)) == REFUSED
    worker = node.bench.worker()
    node.bench.call(pause.change, tube, worker, "puts", True)
    assert text(node.put(tube)) == pause.refusal(tube.name).text
    node.use(50)
    assert text(node.put(tube)) == pause.refusal(tube.name).text
    node.use(101)
    node.bench.call(pause.change, tube, worker, "puts", False)
    assert text(node.put(tube)) == REFUSED
    node.use(50)
    assert node.put(tube)[1] == "r"
    assert tube.driver is tube.inner


def test_records_and_tasks_of_queue15_are_refused_too() -> None:
    records = xqueue_bench.Calls()
    node = Watched(records.bench)
    key = records.put()["id"]
    node.use(101)
    assert "memory.max" in records.put()
    assert records("take", 0)["id"] == key
    assert "memory.max" not in str(records("ack", key))
    calls = queue15_bench.make()
    node = Watched(calls.bench)
    ident = calls.put("t", "x")
    node.use(101)
    assert "memory.max" in calls("put", "t", 0, 0, 0, 0, "y")
    assert calls("take", "t", 0)[0] == ident
    assert calls("ack", ident)[0] == ident


def test_a_replica_applies_all_the_same(node: Watched) -> None:
    tube = node.tube()
    for _ in range(3):
        node.put(tube)
    other = Watched(Bench())
    other.use(101)
    for record in node.bench.log:
        other.bench.engine.store.apply(record[3])
    assert len(other.bench.engine.tubes[tube.name].space.rows) == 3
    # What it refuses it refuses from its promotion on.
    other.bench.start()
    assert text(other.put(other.bench.engine.tubes[tube.name])) == REFUSED


def test_no_bound_never_refuses() -> None:
    bench = Bench()
    bench.start()
    watch = MemoryWatch(bench.engine, None, None, print, print, lambda: 1 << 60, 1)
    assert not watch.look()
    assert watch.state == OK


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 0),
        ({"proc/meminfo": "MemFree: 1 kB\nMemTotal:   2048 kB\n"}, 2048 * 1024),
        (
            {
                "proc/meminfo": "MemTotal: 2048 kB\n",
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": "1000000\n",
            },
            1_000_000,
        ),
        (
            {
                "proc/meminfo": "MemTotal: 2048 kB\n",
                "proc/self/cgroup": "5:cpu:/x\n4:memory:/host/path\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "1500000\n",
            },
            1_500_000,
        ),
        (
            {
                "proc/meminfo": "MemTotal: 2048 kB\n",
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{HUGE_V1}\n",
            },
            2048 * 1024,
        ),
        ({"proc/meminfo": "nonsense\nMemTotal: x kB\n"}, 0),
    ],
)
def test_what_there_is(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert total_bytes(tmp_path) == expected


def test_of_this_very_process() -> None:
    assert 10 * MIB < used_bytes() < total_bytes()
    give_back()


def test_shares_and_sizes() -> None:
    assert [bound(text, 1000) for text in (None, "80%", "0.5%", "64")] == [0, 800, 5, 64]
    assert parse_share(" 80 %") == parse_share("80.0%") == "80%"
    assert parse_share("512MiB") == parse_share(512 * MIB) == str(512 * MIB)


@pytest.mark.parametrize("value", ["0%", "101%", "x%", "-5%", "1023KiB", 5, "many", True, 1.5])
def test_what_is_no_bound(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"memory\.max"):
        Settings.load(flags={"memory.max": value})


def test_high_is_not_above_max() -> None:
    with pytest.raises(ConfigError, match=r"memory\.high.*must not exceed memory\.max"):
        Settings.load(flags={"memory.high": "50%", "memory.max": "40%"})
    assert Settings.load(flags={"memory.high": None, "memory.max": None}).memory.max is None
