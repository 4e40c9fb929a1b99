"""What this server has beyond the original: batches on every tube, and fencing tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.compat_client import Raw, Tube, eventually, new_tube, refusal
from tests.compat.compat_server import Server

DRIVERS = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")


def test_batch_round_trip(raw: Raw) -> None:
    for driver in DRIVERS:
        tube = new_tube(raw, driver)
        items = [["a", {"utube": 1}], ["b"], ["c", {"utube": 3}]]
        assert tube("put_many", items, {"utube": 2}) == [[0, 1, 2]]
        assert tube("take_many", 2) == [[[0, "t", "a"], [1, "t", "b"]]]
        assert tube("take_many", 5) == [[[2, "t", "c"]]]
        assert tube("take_many", 5) == [[]]
        assert tube("release_many", [0]) == [1]
        assert tube("ack_many", [2, 1]) == [2]
        assert tube("take", 0) == [[0, "t", "a"]]
        assert tube("ack_many", []) == [0]
        calls = tube.statistics()["calls"]
        assert (calls["put"], calls["take"], calls["release"], calls["ack"]) == (3, 4, 1, 2)


@pytest.mark.parametrize("method", ["ack_many", "release_many"])
def test_batch_is_all_or_nothing(raw: Raw, method: str) -> None:
    tube = new_tube(raw, "fifo")
    tube("put_many", [["a"], ["b"]])
    tube("take", 0)
    assert refusal(lambda: tube(method, [0, 1])).text == "Task was not taken"
    assert tube("peek", 0) == [[0, "t", "a"]]
    assert refusal(lambda: tube(method, [0, 0])).code == 32
    assert refusal(lambda: tube(method, "0")).code == 32
    assert tube("ack", 0) == [[0, "-", "a"]]


def test_batch_put_is_all_or_nothing(raw: Raw) -> None:
    tube = new_tube(raw, "fifottl")
    assert refusal(lambda: tube("put_many", [["a"], ["b", {"ttl": -1}]])).code == 32
    assert tube.statistics()["tasks"]["total"] == 0
    assert tube.statistics()["calls"]["put"] == 0
    assert tube("put", "c")[0][1:] == ["r", "c"]


def test_batch_take_waits_for_the_first(raw: Raw) -> None:
    tube = new_tube(raw, "fifo")
    waiting = tube.start("take_many", 10, 5)
    assert raw.silent(0.02)
    tube("put", "x")
    assert raw.answer(waiting) == [[[0, "t", "x"]]]
    assert tube("take_many", 10, 0.02) in ([], [[]])


def taken(raw: Raw, driver: str = "fifottl", **options: Any) -> tuple[Tube, int]:
    tube = new_tube(raw, driver)
    tube("put", "x", options)
    ((task_id, status, data, token),) = tube("take", 0, {"token": True})
    assert (task_id, status, data) == (0, "t", "x")
    assert type(token) is int
    return tube, token


def test_token_is_accepted(raw: Raw) -> None:
    tube, token = taken(raw)
    assert tube("touch", 0, 1, {"token": token}) == [[0, "t", "x"]]
    assert tube("release", 0, {"token": token}) == [[0, "r", "x"]]
    ((*_, second),) = tube("take", 0, {"token": True})
    assert second > token, "later deliveries have larger tokens"
    for call in ("ack", "release", "bury"):
        assert refusal(lambda call=call: tube(call, 0, {"token": token})).text == (
            "Task was not taken"
        )
    assert tube("bury", 0, {"token": second}) == [[0, "!", "x"]]


def test_token_of_a_delivery_that_ended(raw: Raw) -> None:
    """A worker whose task went back and was taken again by its own session notices."""
    tube, token = taken(raw, ttr=0.02)
    eventually(lambda: tube.statistics()["calls"]["ttr"] == 1)
    tube("take", 0)
    for method, args in (("ack", (0,)), ("release", (0,)), ("touch", (0, 1))):
        error = refusal(lambda m=method, a=args: tube(m, *a, {"token": token}))  # type: ignore[misc]
        assert error.text == "Task was not taken"


def test_token_to_a_waiting_consumer(raw: Raw) -> None:
    tube = new_tube(raw, "fifo")
    waiting = tube.start("take", 5, {"token": True})
    tube("put", "x")
    ((*_, token),) = raw.answer(waiting)
    assert tube("ack", 0, {"token": token}) == [[0, "-", "x"]]


def test_without_token_the_tuple_has_three_fields(
    server: Server, connect: Callable[..., Any]
) -> None:
    tube = new_tube(connect(server, "tarantool"), "utubettl")
    tube("put", "x")
    assert tube("take", 0, {}) == [[0, "t", "x"]]
