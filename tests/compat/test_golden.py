"""The golden vectors of the original queue module, replayed over a real socket.

Each vector is a list of steps on one fresh tube; it runs over the stock connector and over raw
IPROTO. Where this server differs on purpose the step says so; docs/compatibility.md has the list.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.compat_client import Raw, Refused, Tube, call, eventually, new_tube
from tests.compat.compat_server import Server

NONE = None
S = 1_000_000  # µs in a second


class Err:
    """An error answer: its code and what its text ends with."""

    def __init__(self, code: int, text: str = "") -> None:
        self.code = code
        self.text = text


Step = tuple[str, tuple[Any, ...], Any]

FIFO: list[Step] = [
    ("put", ("data",), [[0, "r", "data"]]),
    ("put", ({"a": 1},), [[1, "r", {"a": 1}]]),
    ("put", (), Err(39, "Tuple field 3 required by space format is missing")),
    ("put", (NONE,), [[2, "r", NONE]]),
    ("take", (), [[0, "t", "data"]]),
    ("ack", (0,), [[0, "-", "data"]]),
    ("ack", (0,), Err(32, "Task was not taken")),
    ("peek", (0,), Err(32, "Task 0 not found")),
    ("bury", (1,), [[1, "!", {"a": 1}]]),
    ("bury", (1,), [[1, "!", {"a": 1}]]),
    ("kick", (), [1]),
    ("kick", (5,), [0]),
    ("kick", (0,), [0]),
    ("touch", (1,), []),
    ("touch", (1, 0), []),
    ("touch", (1, -5), []),
    ("delete", (1,), [[1, "-", {"a": 1}]]),
    ("delete", (1,), Err(32, "Task 1 not found")),
    ("delete", (2,), [[2, "-", NONE]]),
    ("take", (0,), []),
    ("take", (-1,), []),
    ("release_all", (), []),
    # The original starts again at 0 when a tube is empty; here ids never repeat ...
    ("put", ("later",), [[3, "r", "later"]]),
    # ... unless the tube is truncated.
    ("truncate", (), []),
    ("put", ("anew",), [[0, "r", "anew"]]),
    ("drop", (), [True]),
    ("drop", (), Err(33, "is not defined")),
]
UTUBE: list[Step] = [
    ("put", ("a0", {"utube": "a"}), [[0, "r", "a0"]]),
    ("put", ("a1", {"utube": "a"}), [[1, "r", "a1"]]),
    ("put", ("b2", {"utube": "b"}), [[2, "r", "b2"]]),
    ("take", (0,), [[0, "t", "a0"]]),
    ("take", (0,), [[2, "t", "b2"]]),
    ("take", (0,), []),
    ("ack", (0,), [[0, "-", "a0"]]),
    ("take", (0,), [[1, "t", "a1"]]),
]
BY_PRIORITY: list[Step] = [
    ("put", ("a", {"utube": "a", "pri": 5}), [[0, "r", "a"]]),
    ("put", ("b", {"utube": "b", "pri": 3}), [[1, "r", "b"]]),
    ("put", ("a", {"utube": "a", "pri": 1}), [[2, "r", "a"]]),
    ("put", ("b", {"utube": "b", "pri": 7}), [[3, "r", "b"]]),
    ("put", ("c", {"utube": "c", "pri": 1}), [[4, "r", "c"]]),
    ("take", (0,), [[2, "t", "a"]]),
    ("take", (0,), [[4, "t", "c"]]),
    ("take", (0,), [[1, "t", "b"]]),
]
UTUBETTL: list[Step] = [*BY_PRIORITY, ("take", (0,), []), ("take", (0,), [])]
FIFOTTL: list[Step] = [
    *BY_PRIORITY,
    ("take", (0,), [[0, "t", "a"]]),
    ("take", (0,), [[3, "t", "b"]]),
]
MODULE: list[Step] = [
    ("queue.state", (), ["RUNNING"]),
    ("queue.cfg", (), []),
    ("queue.tube", ("no such tube",), [False]),
    ("queue.statistics", ("no such tube",), Err(32)),
    ("queue.tube.zzz:peek", (0,), Err(33, "Procedure 'queue.tube.zzz:peek' is not defined")),
]
VECTORS = {
    "fifo": ("fifo", {}, FIFO),
    "utube": ("utube", {}, UTUBE),
    "utube ready buffer": ("utube", {"storage_mode": "ready_buffer"}, UTUBE),
    "utubettl": ("utubettl", {}, UTUBETTL),
    "utubettl ready buffer": ("utubettl", {"storage_mode": "ready_buffer"}, UTUBETTL),
    "fifottl": ("fifottl", {}, FIFOTTL),
    "limfifottl": ("limfifottl", {}, FIFOTTL),
}


def play(do: Callable[..., list[Any]], steps: list[Step]) -> None:
    """Make each call and compare the whole answer, nil and nothing told apart."""
    for number, (method, args, expected) in enumerate(steps):
        where = f"step {number}: {method}{args}"
        try:
            answer: Any = do(method, *args)
        except Refused as error:
            assert isinstance(expected, Err), f"{where} refused: {error}"
            assert error.code == expected.code, f"{where} refused: {error}"
            assert error.text.endswith(expected.text), f"{where} refused: {error}"
        else:
            assert answer == expected, f"{where}: {answer}"


@pytest.fixture(params=["tarantool", "raw"])
def either(request: pytest.FixtureRequest, server: Server, connect: Callable[..., Any]) -> Any:
    return connect(server, request.param)


@pytest.mark.parametrize("vector", VECTORS)
def test_vector(either: Any, vector: str) -> None:
    driver, options, steps = VECTORS[vector]
    play(new_tube(either, driver, **options), steps)


def test_module_vector(either: Any) -> None:
    play(lambda name, *args: call(either, name, *args), MODULE)


def test_statistics_vector(either: Any) -> None:
    tube = new_tube(either, "fifo")
    for number in range(5):
        tube("put", number)
    for method, *args in (("delete", 4), ("take",), ("release", 0), ("take",), ("ack", 0)):
        tube(method, *args)
    for method, *args in (("bury", 1), ("bury", 2), ("kick", 1), ("take",)):
        tube(method, *args)
    found = tube.statistics()
    assert found["tasks"] == {
        "taken": 1, "buried": 1, "ready": 1, "done": 2, "delayed": 0, "total": 3
    }  # fmt: skip
    assert found["calls"] == {
        "delete": 1, "ack": 1, "take": 3, "kick": 1, "bury": 2, "put": 5, "release": 1,
        "touch": 0, "ttl": 0, "ttr": 0, "delay": 0,
    }  # fmt: skip


def test_full_limfifottl(either: Any) -> None:
    tube = new_tube(either, "limfifottl", capacity=2)
    assert tube("put", "one") == [[0, "r", "one"]]
    assert tube("put", "two") == [[1, "r", "two"]]
    # The original takes 10 ms to find out.
    assert tube("put", "three") == [None]
    assert tube("put", "three", {"timeout": -1}) == [None]
    began = time.monotonic()
    assert tube("put", "three", {"timeout": 0.3}) == [None]
    assert 0.29 <= time.monotonic() - began < 2
    assert tube.statistics()["calls"]["put"] == 2


# -- rows as they are stored -----------------------------------------------------------------------


@pytest.fixture
def fifottl(raw: Raw) -> Tube:
    return new_tube(raw, "fifottl")


def row(tube: Tube) -> list[Any]:
    (found,) = tube.conn.rows(tube.name)
    assert isinstance(found, list)
    return found


def test_stored_put(fifottl: Tube) -> None:
    fifottl("put", "d", {"ttl": 10, "ttr": 20})
    found = row(fifottl)
    created = found[6]
    assert abs(created / S - time.time()) < 60
    assert found == [0, "r", created + 10 * S, 10 * S, 20 * S, 0, created, "d"]


def test_stored_put_with_delay(fifottl: Tube) -> None:
    fifottl("put", "d", {"ttl": 60.1, "delay": 80})
    found = row(fifottl)
    created = found[6]
    years = 3_153_600_000 * S
    assert found == [0, "~", created + 80 * S, 140_100_000, years, 0, created, "d"]


def test_stored_touch(fifottl: Tube) -> None:
    fifottl("put", "d", {"ttl": 10, "ttr": 2})
    fifottl("take")
    taken = row(fifottl)[2] - 2 * S
    assert fifottl("touch", 0, 3) == [[0, "t", "d"]]
    found = row(fifottl)
    assert (found[3], found[4]) == (13 * S, 5 * S)
    assert found[2] == taken + 5 * S


def test_stored_release_with_delay(fifottl: Tube) -> None:
    fifottl("put", "d", {"ttl": 1})
    fifottl("take")
    assert fifottl("release", 0, {"delay": 0.3}) == [[0, "~", "d"]]
    assert row(fifottl)[1:4:2] == ["~", 1_300_000]
    eventually(lambda: row(fifottl)[1] == "r")
    found = row(fifottl)
    assert found[2] == found[6] + 1_300_000


def test_take_is_capped_by_ttl(fifottl: Tube) -> None:
    fifottl("put", "d", {"ttl": 10, "ttr": 20})
    fifottl("take")
    found = row(fifottl)
    assert found[2] == found[6] + 10 * S


def test_ttl_of_a_taken_task(fifottl: Tube) -> None:
    fifottl("put", "d", {"ttl": 0.15})
    fifottl("take")
    eventually(lambda: fifottl.statistics()["tasks"]["total"] == 0)
    calls = fifottl.statistics()["calls"]
    assert (calls["ttr"], calls["delete"], calls["ttl"]) == (1, 1, 1)
    with pytest.raises(Refused, match="Task was not taken"):
        fifottl("ack", 0)


def test_put_ttr_defaults_to_the_tubes(raw: Raw) -> None:
    tube = new_tube(raw, "fifottl", ttl=100, ttr=50, pri=3)
    tube("put", "d", {"ttl": 7})
    assert row(tube)[3:6] == [7 * S, 50 * S, 3]
    plain = new_tube(raw, "fifottl", ttl=100)
    plain("put", "d")
    assert row(plain)[3:6] == [100 * S, 100 * S, 0]


def test_released_task_returns_to_its_place(either: Any) -> None:
    tube = new_tube(either, "fifo")
    for number in range(3):
        tube("put", number)
    assert tube("take") == [[0, "t", 0]]
    tube("release", 0)
    assert [tube("take")[0][0] for _ in range(3)] == [0, 1, 2]
