"""A driver that fails: a clear error, nothing half done, no other tube harmed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tandemq.model.errors import QueueError
from tandemq_server.drivers import BUILT_IN, Driver, FifoTtl
from tandemq_server.drivers.base import check_driver
from tandemq_server.engine import admin, batches
from tandemq_server.engine.tube import EngineTube
from tandemq_server.spaces.space import Row
from tests.engine.engine_bench import (
    DRIVERS,
    SECOND,
    Bench,
    Worker,
    assert_replica_agrees,
    shared_state,
    text,
)

BROKEN = "Internal error: RuntimeError: broken"


def break_method(tube: EngineTube, method: str) -> None:
    """From now on it does its work and raises."""
    real = getattr(tube.driver, method)

    def broken(*args: Any) -> None:
        real(*args)
        raise RuntimeError("broken")

    setattr(tube.driver, method, broken)


def prepared(bench: Bench, kind: str) -> tuple[EngineTube, Worker]:
    """0 is taken, 1 ready, 2 buried."""
    tube, who = bench.create("t", kind), bench.worker()
    for name in "abc":
        bench.call(tube.put, who, 0, b"x", {"utube": name})
    bench.call(tube.take, who, 0, 0)
    bench.call(tube.bury, who, 2)
    return tube, who


def calls(tube: EngineTube, who: Worker) -> dict[str, tuple[tuple[Any, ...], ...]]:
    """Driver method -> calls that need it."""
    return {
        "put": ((tube.put, who, 0, b"y"),),
        "put_many": ((batches.put_many, tube, who, [(b"y", None)]),),
        "take": ((tube.take, who, 0, 0), (tube.take, who, 0, None)),
        "take_many": ((batches.take_many, tube, who, 0, 2, 9),),
        "delete": ((tube.ack, who, 0), (tube.delete, who, 1)),
        "delete_many": ((batches.ack_many, tube, who, [0]),),
        "release": (
            (tube.release, who, 0),
            (tube.release_all, who),
            (batches.release_many, tube, who, [0]),
        ),
        "bury": ((tube.bury, who, 1),),
        "kick": ((tube.kick, who, 5),),
        "peek": ((tube.peek, 0),),
        "touch": ((tube.touch, who, 0, 1),),
        "tasks_by_state": ((tube.release_all, who),),
        "truncate": ((tube.truncate, who),),
        "counts": ((admin.statistics, tube.engine, "t"),),
    }


@pytest.mark.parametrize("kind", DRIVERS)
@pytest.mark.parametrize(
    "method",
    [
        "put",
        "put_many",
        "take",
        "take_many",
        "delete",
        "delete_many",
        "release",
        "bury",
        "kick",
        "peek",
        "touch",
        "tasks_by_state",
        "truncate",
        "counts",
    ],
)
def test_nothing_stays_of_a_failed_call(bench: Bench, kind: str, method: str) -> None:
    tube, who = prepared(bench, kind)
    tokens, counters = dict(tube.taken.rows), dict(tube.calls)
    before = shared_state(bench.replica().engine)
    logged = len(bench.log)
    break_method(tube, method)
    for call in calls(tube, who)[method]:
        outcome = bench.call(*call)
        assert isinstance(outcome, QueueError)
        assert outcome.text == BROKEN or "does not support touch" in outcome.text
    delattr(tube.driver, method)
    assert len(bench.log) == logged
    assert shared_state(bench.engine) == before
    assert (tube.taken.rows, tube.calls) == (tokens, counters)
    assert bench.call(tube.put, who, 0, b"y")[0] == 3
    assert bench.call(tube.ack, who, 0)[1] == "-"


@pytest.mark.parametrize("kind", DRIVERS)
def test_who_waits_is_told(bench: Bench, kind: str) -> None:
    """A driver that fails for somebody in line fails him alone, as if he had just called."""
    tube, who, waiting = bench.create("t", kind), bench.worker(), bench.worker()
    other = bench.create("other", "fifo")
    bench.call(tube.take, waiting, 1, None)
    bench.call(batches.take_many, tube, waiting, 2, 2, 9)
    bench.call(other.take, waiting, 3, None)
    break_method(tube, "take")
    break_method(tube, "take_many")
    bench.call(tube.put, who, 0, b"x")
    bench.call(other.put, who, 0, b"y")
    told = [outcome.text if isinstance(outcome, QueueError) else 0 for _, outcome in waiting.told]
    assert told == [BROKEN, BROKEN, 0]
    assert tube.space.rows[0][1] == "r"
    assert not bench.engine.store.timers


def test_a_blocked_put_is_told(bench: Bench) -> None:
    tube, who = bench.create("t", "limfifottl", capacity=1), bench.worker()
    bench.call(tube.put, who, 0, b"x")
    bench.call(tube.put, who, 1, b"y", {"timeout": 9})
    break_method(tube, "put")
    bench.call(tube.delete, who, 0)
    assert [(ticket, text(outcome)) for ticket, outcome in who.told] == [(1, BROKEN)]
    assert not tube.space.rows


def test_a_deadline_that_fails_is_dropped(bench: Bench) -> None:
    """And does not keep the node busy for ever, or the task from being finished."""
    tube, who = bench.create("t", "fifottl"), bench.worker()
    for _ in range(2):
        bench.call(tube.put, who, 0, b"x", {"ttl": 5})
    bench.call(tube.put, who, 0, b"x", {"ttl": 9})
    real = tube.driver.expire
    tube.driver.expire = lambda task_id, now: real(task_id, now) if task_id else 1 / 0
    bench.engine.now += 5 * SECOND
    bench.call(bench.engine.tick)
    assert list(tube.space.rows) == [0, 2]
    assert bench.engine.next_due() == bench.engine.now + 4 * SECOND
    (report,) = bench.reports
    assert report.startswith("deadline of task 0 in space 1024 dropped: ZeroDivisionError")
    bench.engine.store.check()
    del tube.driver.expire
    bench.call(tube.delete, who, 0)


def test_a_driver_that_expires_nothing_does_not_hang_the_node(bench: Bench) -> None:
    tube, who = bench.create("t", "fifottl"), bench.worker()
    bench.call(tube.put, who, 0, b"x", {"ttl": 0})
    tube.driver.expire = lambda task_id, now: []
    for call in ((tube.take, who, 0, 0), (batches.take_many, tube, who, 0, 2)):
        assert "does not expire it" in text(bench.call(*call))
    bench.call(bench.engine.tick)
    assert bench.engine.next_due() is None
    del tube.driver.expire
    bench.call(tube.take, who, 0, 0)
    assert not tube.space.rows


def test_statistics_of_the_others(bench: Bench) -> None:
    break_method(bench.create("broken", "fifo"), "counts")
    bench.create("fine", "fifo")
    assert list(bench.call(admin.statistics, bench.engine)) == ["fine"]


class Fragile(FifoTtl):
    """Fails where its class attribute says."""

    failing = ""

    @classmethod
    def new(cls, space: Any, opts: dict[str, Any]) -> Driver:
        return cls._maybe("new", cls(space, opts))

    @classmethod
    def create_space(cls, *args: Any) -> Any:
        return cls._maybe("create_space", super().create_space(*args))

    @classmethod
    def _maybe(cls, method: str, value: Any) -> Any:
        if cls.failing == method:
            raise RuntimeError("broken")
        return value

    def start(self, now: int) -> None:
        self._maybe("start", None)

    def stop(self) -> None:
        self._maybe("stop", None)

    def normalize_task(self, row: Row) -> Any:
        return self._maybe("normalize_task", super().normalize_task(row))

    def release(self, *args: Any) -> Row:
        return self._maybe("release", super().release(*args))


@pytest.fixture
def fragile() -> Iterator[type[Fragile]]:
    Fragile.failing = ""
    yield Fragile
    Fragile.failing = ""


def fragile_bench(**more: Any) -> Bench:
    return Bench({**BUILT_IN, "fragile": Fragile}, **more)


@pytest.mark.parametrize("method", ["new", "create_space"])
def test_a_tube_that_cannot_be_made_is_not_there(fragile: type[Fragile], method: str) -> None:
    bench = fragile_bench()
    bench.start()
    bench.create("fine", "fifo")
    fragile.failing = method
    refusal = bench.call(admin.create_tube, bench.engine, "t", "fragile", {})
    expected = f'The "fragile" driver cannot serve tube t: {method} failed: RuntimeError: broken'
    assert text(refusal) == expected
    assert admin.tube_names(bench.engine) == ["fine"]
    fragile.failing = ""
    bench.create("t", "fragile")
    assert_replica_agrees(bench)


@pytest.mark.parametrize("method", ["new", "create_space", "start", "stop", "release"])
def test_a_broken_driver_at_start_harms_no_other_tube(fragile: type[Fragile], method: str) -> None:
    bench = fragile_bench()
    bench.start()
    who = bench.worker()
    for name, kind in (("t", "fragile"), ("fine", "fifo")):
        tube = bench.create(name, kind)
        bench.call(tube.put, who, 0, b"x")
        bench.call(tube.take, who, 0, 0)
    fragile.failing = method
    again = fragile_bench(log=bench.log)
    assert again.start() == (1 if method in ("new", "create_space", "release") else 2)
    fine = again.engine.tubes["fine"]
    assert again.call(fine.take, again.worker(), 0, 0)[1] == "t"
    again.engine.stop()
    assert any("broken" in report for report in again.reports)
    if method in ("new", "create_space"):
        assert again.engine.broken["t"] == f"{method} failed: RuntimeError: broken"
    else:
        assert "t" in again.engine.tubes
    # What it could not serve is still there for a repaired one.
    fragile.failing = ""
    repaired = fragile_bench(log=again.log)
    repaired.start()
    tube = repaired.engine.tubes["t"]
    assert repaired.call(tube.take, repaired.worker(), 0, 0)[1] == "t"


@pytest.mark.parametrize("method", ["put", "take", "ack", "release", "bury", "delete"])
def test_a_row_that_cannot_be_shown_is_not_changed(fragile: type[Fragile], method: str) -> None:
    bench = fragile_bench()
    bench.start()
    tube, who = bench.create("t", "fragile"), bench.worker()
    for _ in range(2):
        bench.call(tube.put, who, 0, b"x")
    bench.call(tube.take, who, 0, 0)
    before = shared_state(bench.replica().engine)
    fragile.failing = "normalize_task"
    new = bench.worker()
    args = {"put": (new, 0, b"y"), "take": (new, 0, 0)}.get(method, (who, 0))
    assert text(bench.call(getattr(tube, method), *args)) == BROKEN
    assert new.session is None
    assert shared_state(bench.engine) == before


def test_an_unknown_type_keeps_its_rows(fragile: type[Fragile]) -> None:
    bench = fragile_bench()
    bench.start()
    bench.call(bench.create("t", "fragile").put, bench.worker(), 0, b"x")
    other = bench.replica(BUILT_IN)
    other.start()
    assert other.engine.broken == {"t": "unknown tube type fragile"}
    assert other.engine.store.by_name["t"].rows == bench.engine.store.by_name["t"].rows


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("create_space", 'tube control methods must contain functions "create_space" and "new"'),
        ("new", 'tube control methods must contain functions "create_space" and "new"'),
        ("put", 'The "mine" driver does not have an implementation of method "put".'),
        ("truncate", 'The "mine" driver does not have an implementation of method "truncate".'),
    ],
)
def test_an_incomplete_driver(missing: str, expected: str) -> None:
    with pytest.raises(QueueError) as caught:
        check_driver("mine", type("Mine", (FifoTtl,), {missing: None}))
    assert caught.value.text == expected


def test_a_driver_of_another_family() -> None:
    members = {name: getattr(FifoTtl, name) for name in dir(FifoTtl) if not name.startswith("__")}
    with pytest.raises(QueueError, match="must be a subclass"):
        check_driver("mine", type("Mine", (), members))
    with pytest.raises(QueueError, match='method "create_space"'):
        check_driver("mine", Driver)


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_callback_that_fails_changes_nothing(bench: Bench, kind: str) -> None:
    tube, who = bench.create("t", kind), bench.worker()

    def callback(_row: Row, event: str) -> None:
        raise RuntimeError(event)

    tube.callback = callback
    bench.call(tube.put, who, 0, b"x")
    bench.call(tube.take, who, 0, 0)
    assert bench.call(tube.ack, who, 0)[1] == "-"
    assert bench.reports == [
        f"on_task_change of tube t failed on {event}: RuntimeError: {event}"
        for event in ("put", "take", "delete")
    ]
