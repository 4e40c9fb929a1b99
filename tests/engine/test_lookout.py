"""A worker hears at once that a task was taken from it, whoever did that and however."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tandemq_server.engine import by_hand as operator
from tandemq_server.engine import listing
from tandemq_server.engine.clients import EMPTY, PENDING
from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import Bench, Worker, text

Way = Callable[[Bench, EngineTube, Worker], Any]

WAYS: dict[str, tuple[Way, str]] = {
    "delete": (lambda b, t, o: b.call(t.delete, o, 0), "it was deleted"),
    "bury": (lambda b, t, o: b.call(t.bury, o, 0), "it was buried"),
    "truncate": (lambda b, t, o: b.call(t.truncate, o), "its tube was truncated"),
    "release_all": (lambda b, t, o: b.call(t.release_all, o), "all tasks were given back"),
    "ttr": (lambda b, t, o: b.pass_time(30), "its time ran out"),
    "operator": (
        lambda b, t, o: b.call(operator.act, t, 0, "release"),
        "an operator gave it back",
    ),
    "bulk": (
        lambda b, t, o: b.call(
            listing.bulk, t, o, "delete", {"state": "taken"}, lambda _name: None
        ),
        "it was deleted",
    ),
}


def taken() -> tuple[Bench, EngineTube, Worker, int]:
    bench = Bench()
    bench.start()
    tube = bench.create("jobs", "fifottl", ttr=30)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    token = bench.call(tube.take, worker, 0, 0, True)[2]
    return bench, tube, worker, token


@pytest.mark.parametrize("way", WAYS)
def test_it_is_told_by_whatever_way_it_goes(way: str) -> None:
    bench, tube, worker, token = taken()
    wait = bench.engine.lookout.wait
    assert bench.call(wait, worker, 7, 60, [["jobs", 0, token]]) is PENDING
    act, why = WAYS[way]
    act(bench, tube, bench.worker())
    assert worker.told == [(7, [["jobs", 0, token, why]])]
    assert not bench.engine.lookout.waiters
    # Who asks again hears what he missed.
    assert bench.call(wait, worker, 8, 60, [["jobs", 0, token]]) == [
        ["jobs", 0, token, "it is no longer held"]
    ]


def test_ones_own_doing_is_no_news_and_an_end_is() -> None:
    bench, tube, worker, token = taken()
    wait = bench.engine.lookout.wait
    assert bench.call(wait, worker, 7, 5, [["jobs", 0, token]]) is PENDING
    bench.call(tube.ack, worker, 0)
    bench.pass_time(4.9)
    assert worker.told == []
    bench.pass_time(0.2)
    assert worker.told == [(7, EMPTY)]
    assert bench.call(wait, worker, 8, 5, []) is PENDING
    bench.engine.wake_all("bye")
    assert worker.told[1:] == [(8, "bye")]
    assert bench.call(wait, worker, 9, 5, []) is PENDING
    bench.disconnect(worker)
    assert not bench.engine.lookout.waiters
    assert not bench.engine.lookout._of


@pytest.mark.parametrize("held", [1, [1], [["a", 1]], [[1, 1, 1]], [["a", 1, 1]] * 10_001])
def test_nonsense_is_refused(held: Any) -> None:
    bench, _, worker, _ = taken()
    assert "Invalid tasks of lost" in text(
        bench.call(bench.engine.lookout.wait, worker, 0, 1, held)
    )


def test_a_call_that_fails_takes_nothing_from_anybody() -> None:
    bench, tube, worker, token = taken()
    wait = bench.engine.lookout.wait
    assert bench.call(wait, worker, 7, 60, [["jobs", 0, token]]) is PENDING
    bench.call(tube.delete, bench.worker(), 99)
    assert worker.told == []
