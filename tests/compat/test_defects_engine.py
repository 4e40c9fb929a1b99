"""Defects of the original that are fixed here, rows 15 to 42: waiting, sessions, cfg, validation.

Rows about role changes are in test_defects_roles.py. What has no test is in `LATER` or
`NOT_APPLICABLE`, so that no row is silently forgotten.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compat.compat_client import Raw, call, eventually, new_tube, refusal
from tests.compat.compat_server import Server

Open = Callable[..., Any]
TTL_DRIVERS = ("fifottl", "limfifottl", "utubettl")
UTUBES = ("utube", "utubettl")
#: Rows that wait for something: why, and where their tests will be.
LATER: dict[int, str] = {}
#: Rows that name no behaviour of a stand-alone server.
NOT_APPLICABLE = {
    37: "transactions of a caller around a call do not exist here",
    38: "queue.start() does not exist here; a node starts its queue once",
    39: "there is one storage engine; `engine` is accepted and checked, not used",
}


def test_defect_15_consumers_are_served_in_order_of_arrival(server: Server, connect: Open) -> None:
    """Whatever their timeouts and connections."""
    late, early = connect(server), connect(server)
    producer = connect(server)
    tube = new_tube(producer, "fifo")
    order = []
    for conn, timeout in ((early, 60), (late, 5), (early, None), (late, 4000), (late, 2)):
        order.append((conn, tube.of(conn).start("take", timeout)))
        conn.ping()
    for number, (conn, waiting) in enumerate(order):
        tube("put", number)
        assert conn.answer(waiting) == [[number, "t", number]]


@pytest.fixture
def own(launch: Open) -> Server:
    """A server whose settings a test may change."""
    node = launch()
    assert isinstance(node, Server)
    return node


def test_defect_16_cfg_leaves_out_what_it_is_not_told(own: Server, connect: Open) -> None:
    conn = connect(own)
    call(conn, "queue.cfg", {"in_replicaset": True, "ttr": 60})
    call(conn, "queue.cfg", {"ttr": 50})
    call(conn, "queue.cfg", {"in_replicaset": None})
    error = refusal(lambda: call(conn, "queue.create_tube", "t", "fifo", {"temporary": True}))
    assert error.text == "Cannot create temporary tube in replicaset mode"
    call(conn, "queue.cfg", {"in_replicaset": False})
    call(conn, "queue.create_tube", "t", "fifo", {"temporary": True})
    worker = connect(own)
    call(conn, "queue.tube.t:put", "x")
    call(worker, "queue.tube.t:take", 0)
    worker.close()
    eventually(lambda: [r[2] for r in conn.rows("_queue_shared_sessions")] == [False])
    (session,) = conn.rows("_queue_shared_sessions")
    assert 40 < session[1] / 1_000_000 - time.time() < 60, "ttr is what the second call said"


def test_defect_17_cfg_is_all_or_nothing(own: Server, connect: Open) -> None:
    conn = connect(own)
    refusal(lambda: call(conn, "queue.cfg", {"in_replicaset": True, "ttr": -1}))
    refusal(lambda: call(conn, "queue.cfg", {"in_replicaset": True, "other": 1}))
    call(conn, "queue.create_tube", "brief", "fifo", {"temporary": True})


def test_defect_18_connections_that_hold_nothing_leave_nothing(own: Server, connect: Open) -> None:
    look = connect(own)
    call(look, "queue.cfg", {"ttr": 60})
    tube = new_tube(look, "fifo")
    for _ in range(5):
        passing = connect(own)
        tube.of(passing)("put", "x")
        tube.of(passing)("peek", 0)
        passing.ping()
        passing.close()
    busy = connect(own)
    tube.of(busy)("take", 0)
    tube.of(busy)("ack", 0)
    busy.close()
    look.ping()
    eventually(lambda: look.rows("_queue_shared_sessions") == [])


def test_defect_19_grants_outlive_a_switch_of_in_replicaset(guarded: Server, connect: Open) -> None:
    operator = connect(guarded, "tarantool", user="worker", password="worker's secret")
    stranger = connect(guarded, "tarantool", user="stranger", password="stranger's secret")
    tube = new_tube(operator, "fifo")
    assert refusal(lambda: tube.of(stranger)("put", "x")).code == 42
    tube("grant", "stranger", {"call": True})
    for in_replicaset in (True, False):
        call(operator, "queue.cfg", {"in_replicaset": in_replicaset})
        ((number, *_),) = tube.of(stranger)("put", "x")
        assert tube.of(stranger)("take", 0) == [[number, "t", "x"]]
        assert tube.of(stranger)("ack", number) == [[number, "-", "x"]]
        assert call(stranger, "queue.statistics", tube.name)
    assert refusal(lambda: tube.of(stranger)("truncate")).code == 42
    assert refusal(lambda: tube.of(stranger)("drop")).code == 42


def test_defect_20_version_is_known(raw: Raw) -> None:
    assert raw.eval("return queue._VERSION") == ["1.5.0"]


@pytest.mark.parametrize(("option", "value"), [("ttr", -1), ("in_replicaset", 5), ("tttr", 1)])
def test_defect_21_bad_settings_are_refused_before_the_start(
    tmp_path: Path, option: str, value: Any
) -> None:
    """Named with file and key, and nothing is touched."""
    path = tmp_path / "node.yaml"
    path.write_text(f"queue:\n  {option}: {value}\n")
    node = Server(tmp_path, flags=["--config", str(path)])
    with pytest.raises(RuntimeError) as caught:
        node.start()
    assert option in str(caught.value)
    assert str(path) in str(caught.value)
    assert not node.data.exists()


@pytest.mark.parametrize("driver", ["fifo", "fifottl", "limfifottl", "utube", "utubettl"])
def test_defect_24_null_is_left_out(raw: Raw, driver: str) -> None:
    tube = new_tube(raw, driver)
    for number in range(2):
        assert tube("put", "x", None) == [[number, "r", "x"]]
    every = {"ttl": None, "ttr": None, "pri": None, "delay": None, "utube": None, "timeout": None}
    assert tube("put", "x", every) == [[2, "r", "x"]]
    tube("bury", 0)
    assert tube("kick", None) == [1]
    assert tube("take", None) == [[0, "t", "x"]]
    assert tube("touch", 0, None) == []
    assert tube("release", 0, None) == [[0, "r", "x"]]
    tube("take", 0)
    assert tube("release", 0, {"delay": None}) == [[0, "r", "x"]]
    assert len(raw.call("queue.statistics", None)[0]) >= 1
    assert raw.call("queue.cfg", None) == []
    assert raw.call("queue.create_tube", f"{tube.name} too", driver, None)


@pytest.mark.parametrize("driver", UTUBES)
@pytest.mark.parametrize("mode", ["default", "ready_buffer"])
def test_defect_27_tasks_behind_a_busy_sub_queue_cost_nothing(
    raw: Raw, driver: str, mode: str
) -> None:
    """The original looks at each: 36 ms a call at 10,000 tasks, so 500 calls would take 18 s."""
    tube = new_tube(raw, driver, storage_mode=mode)
    tube("put_many", [[number] for number in range(10_000)], {"utube": "busy"})
    tube("take", 0)
    began = time.monotonic()
    assert all(tube("take", 0) == [] for _ in range(500))
    assert time.monotonic() - began < 5


def test_defect_28_blocked_puts_are_served_in_order(server: Server, connect: Open) -> None:
    one, two, consumer = connect(server), connect(server), connect(server)
    tube = new_tube(consumer, "limfifottl", capacity=1)
    tube("put", "first")
    second = tube.of(one).start("put", "second", {"timeout": 10})
    one.ping()
    third = tube.of(two).start("put", "third", {"timeout": 10})
    two.ping()
    assert tube.of(one)("put", "no room for this", {"timeout": 0}) == [None]
    tube("take", 0)
    assert one.silent(0.02), "a taken task still counts"
    tube("ack", 0)
    assert one.answer(second) == [[1, "r", "second"]]
    assert two.silent(0.02)
    tube("delete", 1)
    assert two.answer(third) == [[2, "r", "third"]]


def test_defect_29_ids_do_not_repeat(own: Server, connect: Open) -> None:
    """Kept in the original; changed here on purpose, also across a restart."""
    conn = connect(own)
    call(conn, "queue.create_tube", "t", "fifo")
    for number in range(2):
        assert call(conn, "queue.tube.t:put", "x") == [[number, "r", "x"]]
        call(conn, "queue.tube.t:take", 0)
        call(conn, "queue.tube.t:ack", number)
    own.restart(hard=True)
    conn = connect(own)
    assert call(conn, "queue.tube.t:put", "x") == [[2, "r", "x"]]
    call(conn, "queue.tube.t:truncate")
    assert call(conn, "queue.tube.t:put", "x") == [[0, "r", "x"]]


def test_defect_30_remote_create_tube_answers(raw: Raw) -> None:
    (made,) = raw.call("queue.create_tube", "described", "fifottl", {"ttl": 60})
    assert (made["name"], made["type"]) == ("described", "fifottl")
    assert made["opts"]["ttl"] == 60
    assert made["opts"]["ttr"] == 60
    assert made["opts"]["if_not_exists"] is False


@pytest.mark.parametrize("driver", UTUBES)
def test_defect_32_sub_queue_names_are_scalars(raw: Raw, driver: str) -> None:
    tube = new_tube(raw, driver)
    for wrong in ({}, {"a": 1}, [], [1]):
        assert "utube" in refusal(lambda w=wrong: tube("put", "x", {"utube": w})).text  # type: ignore[misc]
    assert tube.statistics()["tasks"]["total"] == 0


@pytest.mark.parametrize("count", [0, -3, -0.5, "-2"])
def test_defect_33_kick_of_less_than_nothing(raw: Raw, count: Any) -> None:
    tube = new_tube(raw, "fifo")
    tube("put", "x")
    tube("bury", 0)
    assert tube("kick", count) == [0]


@pytest.mark.parametrize("driver", TTL_DRIVERS)
@pytest.mark.parametrize("option", ["ttl", "ttr", "pri", "capacity"])
@pytest.mark.parametrize("value", ["x", -1, math.inf, math.nan, {}, True], ids=repr)
def test_defect_34_tube_options_are_checked(raw: Raw, driver: str, option: str, value: Any) -> None:
    if option == "capacity" and driver != "limfifottl":
        driver = "limfifottl"
    name = f"bad {driver} {value!r}"
    error = refusal(lambda: raw.call("queue.create_tube", name, driver, {option: value}))
    assert option in error.text
    assert raw.call("queue.tube", name) == [False]


def test_defect_35_statistics_of_many_tasks(raw: Raw) -> None:
    """Counting is O(1), and an unknown tube is named."""
    tube = new_tube(raw, "fifo")
    tube("put_many", [[number] for number in range(10_000)])
    assert tube.statistics()["tasks"]["ready"] == 10_000
    error = refusal(lambda: raw.call("queue.statistics", "no_such_tube"))
    assert "no_such_tube" in error.text


@pytest.mark.parametrize("driver", TTL_DRIVERS)
@pytest.mark.parametrize("huge", [3_153_600_000, 1e12, 1.8e13, 1e300, 2**63])
def test_defect_36_huge_times_mean_for_ever(raw: Raw, driver: str, huge: float) -> None:
    tube = new_tube(raw, driver)
    tube("put", "x", {"ttl": huge, "ttr": huge})
    assert tube("take", 0) == [[0, "t", "x"]]
    assert tube("release", 0, {"delay": huge}) == [[0, "~", "x"]]
    tube("put", "y", {"delay": huge})
    assert tube.statistics()["tasks"]["delayed"] == 2
    (stored, _) = raw.rows(tube.name)
    assert stored[3] >= 3_153_600_000_000_000


def test_defect_40_no_task_for_a_dead_connection(server: Server, connect: Open, raw: Raw) -> None:
    """A consumer that goes while a task arrives for it does not keep the task."""
    tube = new_tube(raw, "fifo")
    for number in range(30):
        dying = connect(server)
        tube.of(dying).start("take", 60)
        dying.ping()
        put = tube.start("put", number)
        dying.close()
        raw.answer(put)
        assert tube("take", 5) == [[number, "t", number]]
        tube("ack", number)


@pytest.mark.parametrize("driver", UTUBES)
def test_defect_41_a_failed_put_leaves_nothing_open(raw: Raw, driver: str) -> None:
    tube = new_tube(raw, driver)
    refusal(lambda: tube("put"))
    refusal(lambda: tube("put", "x", {"utube": {}}))
    if driver == "utubettl":
        refusal(lambda: tube("put", "x", {"ttl": "x"}))
        refusal(lambda: tube("put", "x", {"pri": -1}))
    assert raw.rows(tube.name) == []
    assert tube("put", "x") == [[0, "r", "x"]], "a refused put uses up no id"


def test_every_row_is_accounted_for() -> None:
    here = Path(__file__).resolve().parent
    text = "".join(path.read_text() for path in here.glob("test_defects*.py"))
    tested = {int(number) for number in re.findall(r"def test_defect_(\d\d)_", text)}
    elsewhere = {*LATER, *NOT_APPLICABLE}
    assert not tested & elsewhere
    assert tested | elsewhere == set(range(1, 43))
