"""The example driver of docs/custom-drivers.md: loaded by name, used, restarted, replicated."""

from __future__ import annotations

import random
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandemq_server.drivers import Driver
from tandemq_server.engine import admin, batches
from tandemq_server.engine.clients import EMPTY, PENDING
from tandemq_server.engine.tube import EngineTube
from tandemq_server.facades.registered import KNOWN
from tandemq_server.node.loop.plugins import PluginError, load_drivers
from tandemq_server.testing import driver_conformance
from tests.engine.engine_bench import SECOND, Bench, Worker, assert_replica_agrees, text

HERE = Path(__file__).resolve().parent


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, type[Driver]]]:
    monkeypatch.syspath_prepend(str(HERE))
    yield load_drivers(KNOWN, {"lifo": "lifo_deadline:LifoDeadline"})
    sys.modules.pop("lifo_deadline", None)


def test_it_may_come_with_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "lifo-1.0.dist-info" / "entry_points.txt"
    said.parent.mkdir()
    (said.parent / "METADATA").write_text("Metadata-Version: 2.1\nName: lifo\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(HERE))
    assert "lifo" not in load_drivers(KNOWN, {})
    said.write_text("[tandemq.drivers]\nlifo = lifo_deadline:LifoDeadline\n")
    assert load_drivers(KNOWN, {})["lifo"].__name__ == "LifoDeadline"
    sys.modules.pop("lifo_deadline", None)


def test_one_in_an_archive_is_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "lifo.zip", "w") as archive:
        said = "Metadata-Version: 2.1\nName: lifo\nVersion: 1.0\n"
        archive.writestr("lifo-1.0.dist-info/METADATA", said)
        said = "[tandemq.drivers]\nlifo = lifo_deadline:LifoDeadline\n"
        archive.writestr("lifo-1.0.dist-info/entry_points.txt", said)
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.syspath_prepend(str(tmp_path / "lifo.zip"))
    assert "lifo" in load_drivers(KNOWN, {})
    sys.modules.pop("lifo_deadline", None)


@pytest.fixture
def bench(drivers: dict[str, type[Driver]]) -> Iterator[Bench]:
    one = Bench(drivers)
    one.start()
    yield one
    assert_replica_agrees(one)


@pytest.fixture
def tube(bench: Bench) -> EngineTube:
    return bench.create("t", "lifo", deadline=60)


@pytest.fixture
def who(bench: Bench) -> Worker:
    return bench.worker()


def test_it_keeps_the_contract(drivers: dict[str, type[Driver]]) -> None:
    driver_conformance(drivers["lifo"])
    driver_conformance(drivers["lifo"], options={"deadline": 60}, puts=[{}, {"deadline": 30}])


def test_the_last_put_is_the_first_taken(bench: Bench, tube: EngineTube, who: Worker) -> None:
    for data in (b"0", b"1", b"2"):
        bench.call(tube.put, who, 0, data)
    rows = [bench.call(tube.take, who, 0, 0) for _ in range(2)]
    assert [row[-1] for row in rows] == [b"2", b"1"]
    assert bench.call(tube.ack, who, 2)[1] == "-"
    bench.call(tube.release, who, 1)
    bench.call(tube.put, who, 0, b"3")
    rows = bench.call(batches.take_many, tube, who, 0, 9)
    assert [row[-1] for row in rows] == [b"3", b"1", b"0"]


def test_kick_and_bury(bench: Bench, tube: EngineTube, who: Worker) -> None:
    for _ in range(3):
        bench.call(tube.put, who, 0, b"x")
        bench.call(tube.bury, who, tube.space.next_id - 1)
    assert bench.call(tube.kick, who, 2) == 2
    assert [row[0] for row in tube.driver.tasks_by_state("r")] == [2, 1]
    assert tube.statistics()["tasks"]["buried"] == 1


@pytest.mark.parametrize("state", ["ready", "taken", "buried"])
def test_deadlines(bench: Bench, tube: EngineTube, who: Worker, state: str) -> None:
    bench.call(tube.put, who, 0, b"x", {"deadline": 5})
    if state == "taken":
        bench.call(tube.take, who, 0, 0)
    elif state == "buried":
        bench.call(tube.bury, who, 0)
    bench.pass_time(5)
    assert not tube.space.rows
    assert not tube.taken.rows
    assert (tube.calls["ttl"], tube.done) == (1, 1)
    bench.call(tube.put, who, 0, b"x", {"deadline": 0})
    assert bench.call(tube.take, who, 0, 0) is EMPTY


def test_touch_moves_the_deadline(bench: Bench, tube: EngineTube, who: Worker) -> None:
    bench.call(tube.put, who, 0, b"x")
    bench.call(tube.take, who, 0, 0)
    bench.call(tube.touch, who, 0, 40)
    bench.pass_time(99)
    assert tube.space.rows
    bench.pass_time(1)
    assert not tube.space.rows
    endless = bench.create("endless", "lifo")
    bench.call(endless.put, who, 0, b"x")
    bench.call(endless.take, who, 0, 0)
    assert text(bench.call(endless.touch, who, 0, 1)) == "Task 0 has no deadline to move"


def test_who_waits_is_served(bench: Bench, tube: EngineTube, who: Worker) -> None:
    assert bench.call(tube.take, who, 7, 5) is PENDING
    bench.call(tube.put, bench.worker(), 0, b"x")
    assert [(ticket, row[1]) for ticket, row in who.told] == [(7, "t")]


@pytest.mark.parametrize("deadline", [-1, "5", float("inf")])
def test_bad_options(bench: Bench, tube: EngineTube, who: Worker, deadline: object) -> None:
    assert "deadline" in text(bench.call(tube.put, who, 0, b"x", {"deadline": deadline}))
    items = [(b"x", None), (b"x", {"deadline": deadline})]
    assert "deadline" in text(bench.call(batches.put_many, tube, who, items))
    opts = {"deadline": deadline}
    assert "deadline" in text(bench.call(admin.create_tube, bench.engine, "u", "lifo", opts))
    fifo = bench.create("fifo", "fifo")
    assert text(bench.call(fifo.put, who, 0, b"x", {"deadline": 5})) == "Unknown option deadline"
    assert not tube.space.rows


@pytest.mark.parametrize("seed", range(5))
def test_replica_and_restart(bench: Bench, tube: EngineTube, seed: int) -> None:
    """Whatever happens to it, it replicates and restarts without knowing."""
    chance = random.Random(seed)
    workers = [bench.worker() for _ in range(3)]
    for step in range(300):
        who, task_id = chance.choice(workers), chance.randrange(20)
        call = chance.choice([
            (tube.put, who, 0, b"x", {"deadline": chance.choice([None, 1, 5])}),
            (tube.take, who, 0, chance.choice([0, 1])),
            (tube.ack, who, task_id),
            (tube.release, who, task_id),
            (tube.touch, who, task_id, 1),
            (tube.bury, who, task_id),
            (tube.kick, who),
        ])  # fmt: skip
        bench.call(*call)
        if step % 10 == 0:
            bench.pass_time(1)
            bench.engine.store.check()
    other = assert_replica_agrees(bench)
    other.start()
    assert other.engine.tubes["t"].statistics()["tasks"]["taken"] == 0
    other.pass_time(100)
    assert other.engine.next_due() is None
    assert other.engine.now == bench.engine.now + 100 * SECOND
    assert_replica_agrees(other)


@pytest.mark.parametrize(
    ("name", "reference", "expected"),
    [
        ("lifo", "lifo_deadline:Nothing", "drivers.lifo: cannot load lifo_deadline:Nothing: "),
        ("lifo", "nosuch:Driver", "drivers.lifo: cannot load nosuch:Driver: No module"),
        ("lifo", "lifo_deadline", "drivers.lifo: cannot load lifo_deadline: "),
        (
            "fifo",
            "lifo_deadline:LifoDeadline",
            'drivers.fifo: overriding registered driver "fifo"',
        ),
        ("lifo", "lifo_deadline:due", "drivers.lifo: tube control methods must contain functions"),
        (
            "lifo",
            "tandemq_server.drivers.base:StatusDriver",
            'does not have an implementation of method "create',
        ),
    ],
)
def test_what_cannot_be_loaded(
    drivers: dict[str, type[Driver]], name: str, reference: str, expected: str
) -> None:
    assert "lifo" in drivers
    with pytest.raises(PluginError) as caught:
        load_drivers(KNOWN, {name: reference})
    assert expected in str(caught.value)
