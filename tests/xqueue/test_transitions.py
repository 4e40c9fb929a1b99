"""States, transitions, order, futures and statistics (sections 7, 8, 9 and 11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.xqueue.xqueue_bench import EPOCH_S, PENDING, Calls

Declare = Callable[..., Calls]


def taken(calls: Calls, **opts: Any) -> Any:
    calls.put()
    return calls("take", opts)["id"]


def test_put_is_ready_and_generators_number_in_order(declare: Declare) -> None:
    calls = declare()
    first, second = calls.put(payload=[1, {"a": None}]), calls.put()
    assert (first["status"], first["runat"], first["payload"]) == ("R", 0, [1, {"a": None}])
    assert first["id"] == EPOCH_S * 10**9
    assert second["id"] == first["id"] + 1
    assert calls("take")["id"] == first["id"]


@pytest.mark.parametrize(
    ("opts", "status", "after", "then"),
    [
        ({"delay": 5}, "W", 5, "R"),
        ({"delay": 0}, "W", 0.001, "R"),
        ({"delay": -3}, "W", 0.001, "R"),
        ({"ttl": 5}, "R", 5, "X"),
        (None, "R", 1e6, "R"),
    ],
)
def test_put_and_its_deadline(
    declare: Declare, opts: Any, status: str, after: float, then: str
) -> None:
    calls = declare()
    key = calls.put(opts)["id"]
    assert calls.state(key) == status
    if after > 1:
        calls.bench.pass_time(after - 0.001)
        assert calls.state(key) == status
    calls.bench.pass_time(0.002)
    assert calls.state(key) == then


@pytest.mark.parametrize(
    ("features", "attr", "state", "after", "then"),
    [
        ({}, None, "X", 1, "X"),
        ({"keep": True}, None, "D", 1e6, "D"),
        ({"zombie": 5}, None, "Z", 5, "X"),
        ({"zombie": 5}, {"delay": 9}, "Z", 9, "X"),
        ({"zombie": True}, {"delay": 2}, "Z", 2, "X"),
        ({"zombie": True}, None, "X", 1, "X"),
    ],
)
def test_ack(
    declare: Declare, features: Any, attr: Any, state: str, after: float, then: str
) -> None:
    calls = declare(features)
    key = taken(calls, ttr=1)
    calls("ack", key, attr)
    assert calls.state(key) == state
    calls.bench.pass_time(after - 0.001)
    assert calls.state(key) == state
    calls.bench.pass_time(0.002)
    assert calls.state(key) == then


@pytest.mark.parametrize(
    ("attr", "state", "after", "then"),
    [
        (None, "R", 1e6, "R"),
        ({"delay": 5}, "W", 5, "R"),
        ({"ttl": 5}, "R", 5, "X"),
    ],
)
def test_release(declare: Declare, attr: Any, state: str, after: float, then: str) -> None:
    calls = declare()
    key = taken(calls)
    assert calls("release", key, attr)["status"] == state
    calls.bench.pass_time(after + 0.001)
    assert calls.state(key) == then


def test_ttr_returns_a_task_and_its_late_owner_is_told(declare: Declare) -> None:
    calls = declare()
    key = taken(calls, ttr=5)
    calls.bench.pass_time(5.001)
    assert calls.state(key) == "R"
    assert calls("ack", key) == f"! Task {key}ULL not taken by any"


def test_touch_prolongs_ttr_and_ttl(declare: Declare) -> None:
    calls = declare()
    key = taken(calls, ttr=5)
    calls("touch", key, {"increment": 5})
    calls.bench.pass_time(9)
    assert calls.state(key) == "T"
    other = calls.put({"ttl": 5})["id"]
    calls("touch", {"id": other}, {"increment": 5})
    calls.bench.pass_time(9)
    assert (calls.state(key), calls.state(other)) == ("R", "R")
    calls.bench.pass_time(2)
    assert calls.state(other) == "X"


def test_disconnect_and_restart_return_tasks(declare: Declare) -> None:
    calls = declare()
    worker = calls.bench.worker()
    calls.put()
    key = calls("take", by=worker)["id"]
    calls.bench.disconnect(worker)
    assert calls.state(key) == "R"
    calls("take")
    other = calls.bench.replica()
    assert other.engine.tubes["q"].space.rows[key][1] == "t"
    assert other.start() == 1
    assert other.engine.tubes["q"].space.rows[key][1] == "r"


def test_a_shared_session_keeps_its_task_over_a_promotion(declare: Declare) -> None:
    calls = declare()
    calls.bench.call(calls.bench.engine.configure, 60, True)
    worker = calls.bench.worker()
    session = calls.bench.call(calls.bench.engine.sessions.identify, worker, None)
    calls.put()
    key = calls("take", by=worker)["id"]
    other = calls.bench.replica()
    assert other.start() == 0
    again = other.worker()
    other.call(other.engine.sessions.identify, again, session)
    outcome = other.call(other.engine.tubes["q"].ack_record, again, key)  # type: ignore[attr-defined]
    assert outcome[0]["status"] == "T"
    assert not other.engine.tubes["q"].space.rows


def test_without_a_claim_within_ttr_a_task_is_ready_after_a_promotion(declare: Declare) -> None:
    calls = declare()
    calls.bench.call(calls.bench.engine.configure, 5, True)
    calls.put()
    key = calls("take")["id"]
    other = calls.bench.replica()
    other.start()
    other.pass_time(5.1)
    assert other.engine.tubes["q"].space.rows[key][1] == "r"
    calls.bench.disconnect(calls.me)


def test_order_is_priority_then_key_and_tubes_are_apart(declare: Declare) -> None:
    calls = declare()
    low, high, other = (
        calls.put(priority=5)["id"],
        calls.put(priority=-1)["id"],
        calls.put(priority=0, tube="b")["id"],
    )
    assert calls("take", 0, {"tube": "b"})["id"] == other
    assert [calls("take")["id"] for _ in range(2)] == [high, low]
    assert calls("take", 0, {"tube": "zzz"}) is None


def test_updates_move_tasks_between_tubes(declare: Declare) -> None:
    calls = declare(tube_stats=["a", "b"])
    key = taken(calls)
    shown = calls(
        "release", key, {"update": [["=", "tube", "b"], ["+", "priority", 3], ["=", "status", "D"]]}
    )
    assert (shown["tube"], shown["priority"], shown["status"]) == ("b", 3, "R")
    stats = calls("stats")
    assert stats["tube"]["a"]["transition"] == {"X-R": 1, "R-T": 1, "T-S": 1}
    assert stats["tube"]["b"]["transition"] == {"S-R": 1}
    assert stats["tube"]["a"]["counts"]["R"] == 0
    assert stats["tube"]["b"]["counts"]["R"] == 1
    assert calls("take", 0, {"tube": "b"})["id"] == key


def test_waiting_takers_of_a_tube_come_first(declare: Declare) -> None:
    calls = declare()
    anyone, scoped, elsewhere = (calls.bench.worker() for _ in range(3))
    assert calls("take", 10, by=anyone) is PENDING
    assert calls("take", 10, {"tube": "b"}, by=elsewhere) is PENDING
    assert calls("take", 10, {"tube": "a"}, by=scoped) is PENDING
    first, second = calls.put()["id"], calls.put()["id"]
    assert calls.told(scoped)[0]["id"] == first
    assert calls.told(anyone)[0]["id"] == second
    calls.bench.pass_time(10.1)
    assert calls.told(elsewhere) == [None]


@pytest.mark.parametrize(
    ("end", "features", "status", "processed"),
    [
        ("ack", {}, "T", True),
        ("ack", {"keep": True}, "D", True),
        ("ack", {"zombie": 5}, "Z", True),
        ("bury", {}, "B", False),
        ("kill", {}, "B", False),
    ],
)
def test_who_waits_for_a_task_is_told(
    declare: Declare, end: str, features: Any, status: str, processed: bool
) -> None:
    calls = declare(features)
    first, second = calls.bench.worker(), calls.bench.worker()
    assert calls("put", {"priority": 0, "tube": "a"}, {"wait": 5}, by=first) is PENDING
    key = calls("take")["id"]
    assert calls("wait", [key], 5, by=second) is PENDING
    calls("release", key)
    calls("take")
    calls(end, key)
    for worker in (first, second):
        ((task, flag),) = calls.told(worker)
        assert (task["id"], task["status"], flag) == (key, status, processed)
    assert not calls.tube.futures
    assert not calls.tube.blocked


def test_ttl_tells_who_waits(declare: Declare) -> None:
    calls = declare()
    assert calls("put", {"priority": 0, "tube": "a"}, {"wait": 9, "ttl": 2}) is PENDING
    calls.bench.pass_time(2.1)
    ((task, flag),) = calls.told()
    assert (task["status"], flag) == ("R", False)


def test_a_wait_ends_with_what_is_known(declare: Declare) -> None:
    calls = declare()
    assert calls("put", {"priority": 0, "tube": "a"}, {"wait": 2}) is PENDING
    calls.bench.pass_time(2.1)
    ((task, flag),) = calls.told()
    assert (task["status"], flag) == ("R", False)
    assert calls("wait", task["id"], 0) == [task, False]


def test_statistics_right_on_a_replica(declare: Declare) -> None:
    calls = declare(tube_stats=["a"])
    key = taken(calls)
    calls("bury", key)
    calls.put(tube="b")
    other = calls.bench.replica()
    there = other.engine.tubes["q"].stats()[0]  # type: ignore[attr-defined]
    here = calls("stats")
    assert there == here
    assert here["counts"] == {"R": 1, "T": 0, "W": 0, "B": 1, "Z": 0, "D": 0}
    assert calls("stats", True)["counts"]["Buried"] == 1
    other.start()
    assert other.engine.tubes["q"].stats()[0]["transition"] == {}  # type: ignore[attr-defined]
