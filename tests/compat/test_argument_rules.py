"""Argument rules of each tube call: what is optional, what is converted, what is refused.

Rules that differ from the original on purpose say so; docs/compatibility.md lists them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from tests.compat.compat_client import Raw, Tube, call, new_tube, refusal
from tests.compat.compat_server import Server

FIELD_OF_DATA = {"fifo": 3, "fifottl": 8, "limfifottl": 8, "utube": 4, "utubettl": 9}
COMPARE = "attempt to compare string with number"


def put(tube: Tube, *args: Any) -> int:
    return int(tube("put", *args)[0][0])


# -- put -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", FIELD_OF_DATA)
def test_put_without_data(tube: Callable[..., Tube], driver: str) -> None:
    fresh = tube(driver)
    error = refusal(lambda: fresh("put"))
    field = FIELD_OF_DATA[driver]
    assert error.code == 39
    assert error.text == f"Tuple field {field} required by space format is missing"
    assert fresh("put", None) == [[0, "r", None]], "NULL is a payload like any other"


@pytest.mark.parametrize("driver", FIELD_OF_DATA)
@pytest.mark.parametrize("options", [None, {}, []], ids=["NULL", "map", "PHP's empty map"])
def test_put_with_no_options(tube: Callable[..., Tube], driver: str, options: Any) -> None:
    assert tube(driver)("put", "x", options) == [[0, "r", "x"]]


@pytest.mark.parametrize("driver", FIELD_OF_DATA)
def test_put_with_other_drivers_options(tube: Callable[..., Tube], driver: str) -> None:
    """Options only some drivers know are ignored by the others, as in the original."""
    options = {"pri": 1, "ttl": 60, "ttr": 30, "utube": "a", "timeout": 1}
    assert tube(driver)("put", "x", options) == [[0, "r", "x"]]


@pytest.mark.parametrize("options", ["text", 5, [1]])
def test_put_options_of_another_type_are_refused(tube: Callable[..., Tube], options: Any) -> None:
    """The original ignores them on some drivers and fails obscurely on others."""
    fresh = tube("fifottl")
    assert refusal(lambda: fresh("put", "x", options)).code == 32
    assert fresh.statistics()["tasks"]["total"] == 0


def test_put_unknown_option_is_refused(tube: Callable[..., Tube]) -> None:
    """The original drops a misspelt option in silence."""
    fresh = tube("fifottl")
    assert "Unknown option tll" in refusal(lambda: fresh("put", "x", {"tll": 5})).text


@pytest.mark.parametrize("driver", ["fifottl", "limfifottl", "utubettl"])
@pytest.mark.parametrize("option", ["ttl", "ttr", "delay"])
def test_put_wrong_times(tube: Callable[..., Tube], driver: str, option: str) -> None:
    fresh = tube(driver)
    error = refusal(lambda: fresh("put", "x", {option: "5"}))
    assert error.code == 32
    assert COMPARE in error.text
    assert option in error.text
    for value in (-1, math.inf, math.nan, {}, True):
        error = refusal(lambda value=value: fresh("put", "x", {option: value}))  # type: ignore[misc]
        assert error.code == 32
        assert option in error.text
    assert fresh.statistics()["tasks"]["total"] == 0
    assert fresh.statistics()["calls"]["put"] == 0


@pytest.mark.parametrize("driver", ["fifottl", "limfifottl", "utubettl"])
@pytest.mark.parametrize("pri", [-1, 1.5, "1", 2**64 * 1.0])
def test_put_wrong_priority(tube: Callable[..., Tube], driver: str, pri: Any) -> None:
    error = refusal(lambda: tube(driver)("put", "x", {"pri": pri}))
    assert error.code == 23
    assert "Tuple field 6 type does not match one required by operation" in error.text


def test_put_times_as_floats_and_integers(raw: Raw) -> None:
    tube = new_tube(raw, "fifottl")
    put(tube, "x", {"ttl": 10.5, "ttr": 2, "pri": 7.0})
    put(tube, "y", {"ttl": 1e-7})
    first = raw.rows(tube.name)[0]
    assert first[3:6] == [10_500_000, 2_000_000, 7]


PAYLOADS = [
    "", "long " * 100, b"\x00\xff", 0, -1, 2**63, 1.5, math.inf, True, None, [], {},
    [[1, {"a": [None]}]], {1: "integer key"},
    msgpack.ExtType(2, bytes(16)), msgpack.ExtType(77, b"?"),
]  # fmt: skip


@pytest.mark.parametrize("payload", PAYLOADS, ids=repr)
def test_payload_comes_back_as_it_was(raw: Raw, payload: Any) -> None:
    tube = new_tube(raw, "fifo")
    assert tube("put", payload) == [[0, "r", payload]]
    assert tube("take", 0) == [[0, "t", payload]]


@pytest.mark.parametrize(
    "encoded",
    [
        b"\xd1\x00\x05",
        b"\xca\x3f\x80\x00\x00",
        b"\xdb\x00\x00\x00\x01a",
        b"\xa2\xff\xfe",
        b"\xc4\x01a",
    ],
    ids=["long integer", "float32", "long string", "not UTF-8", "binary"],
)
def test_payload_bytes_are_untouched(raw: Raw, encoded: bytes) -> None:
    """The original re-encodes what passes through Lua."""
    tube = new_tube(raw, "fifo")
    name = f"queue.tube.{tube.name}:put"
    sync = raw.send_raw_args(name, b"\x91" + encoded)
    code, number, _, body = raw.read_packet()
    assert (code, number) == (0, sync)
    assert body.endswith(b"\xa1r" + encoded)


# -- take ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, -1, 0.0, -0.5, 1e-7])
def test_take_does_not_wait(tube: Callable[..., Tube], timeout: float) -> None:
    assert tube("fifo")("take", timeout) == []


@pytest.mark.parametrize("timeout", ["1", {}, True, [1]])
def test_take_timeout_must_be_a_number(tube: Callable[..., Tube], timeout: Any) -> None:
    """Even if a task is ready, which then stays so."""
    fresh = tube("fifo")
    put(fresh, "x")
    error = refusal(lambda: fresh("take", timeout))
    assert error.code == 32
    assert "attempt to compare" in error.text
    assert fresh("peek", 0) == [[0, "r", "x"]]


@pytest.mark.parametrize("args", [(), (None,), (math.inf,), (4e9,)], ids=repr)
def test_take_waits_for_ever(raw: Raw, args: tuple[Any, ...]) -> None:
    tube = new_tube(raw, "fifo")
    waiting = tube.start("take", *args)
    assert raw.silent(0.05)
    tube("put", "x")
    assert raw.answer(waiting) == [[0, "t", "x"]]


# -- ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ack", "release", "touch", "peek", "bury", "delete"])
def test_task_id(tube: Callable[..., Tube], method: str) -> None:
    fresh = tube("fifottl")
    put(fresh, "x")
    parts = 2 if method in ("ack", "release", "touch") else 1
    more = (5,) if method == "touch" else ()
    error = refusal(lambda: fresh(method, *((None, 5) if more else ())))
    assert error.code == 19
    assert error.text == (
        f"Invalid key part count in an exact match (expected {parts}, got {parts - 1})"
    )
    for wrong in ("0", -1, 0.5, {}, True, 2**64 * 1.0):
        error = refusal(lambda wrong=wrong: fresh(method, wrong, *more))  # type: ignore[misc]
        assert error.code == 18, wrong
        assert error.text == (
            f"Supplied key type of part {parts - 1} does not match index part type: "
            "expected unsigned"
        )


@pytest.mark.parametrize("method", ["ack", "release", "touch", "peek", "bury", "delete"])
def test_task_id_as_an_integral_float(tube: Callable[..., Tube], method: str) -> None:
    fresh = tube("fifottl")
    put(fresh, "x")
    fresh("take", 0)
    answer = fresh(method, 0.0, *((5,) if method == "touch" else ()))
    assert answer[0][0] == 0


# -- touch, release, kick --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [(), (0,), (99,), ("text",), (0, 0), (0, -5), (99, None)], ids=repr
)
@pytest.mark.parametrize("driver", ["fifo", "fifottl", "utube"])
def test_touch_of_nothing(tube: Callable[..., Tube], driver: str, args: tuple[Any, ...]) -> None:
    """No time, no check: an empty answer, whatever the id is."""
    assert tube(driver)("touch", *args) == []


def test_touch_delta_must_be_a_number(tube: Callable[..., Tube]) -> None:
    fresh = tube("fifottl")
    put(fresh, "x")
    fresh("take", 0)
    error = refusal(lambda: fresh("touch", 0, "5"))
    assert error.code == 32
    assert COMPARE in error.text


@pytest.mark.parametrize("options", [None, {}, [], {"delay": 0}, {"delay": None}], ids=repr)
@pytest.mark.parametrize("driver", FIELD_OF_DATA)
def test_release_without_delay(tube: Callable[..., Tube], driver: str, options: Any) -> None:
    fresh = tube(driver)
    put(fresh, "x")
    fresh("take", 0)
    assert fresh("release", 0, options) == [[0, "r", "x"]]


@pytest.mark.parametrize("delay", ["1", -1, math.inf])
def test_release_wrong_delay(tube: Callable[..., Tube], delay: Any) -> None:
    fresh = tube("fifottl")
    put(fresh, "x")
    fresh("take", 0)
    error = refusal(lambda: fresh("release", 0, {"delay": delay}))
    assert error.code == 32
    assert "delay" in error.text
    assert fresh("ack", 0) == [[0, "-", "x"]], "a refused release leaves the task taken"


@pytest.mark.parametrize(
    ("args", "kicked"),
    [((), 1), ((None,), 1), ((0,), 0), ((2,), 2), ((9,), 3), ((1.5,), 1), (("2",), 2)],
    ids=repr,
)
@pytest.mark.parametrize("driver", FIELD_OF_DATA)
def test_kick_count(
    tube: Callable[..., Tube], driver: str, args: tuple[Any, ...], kicked: int
) -> None:
    fresh = tube(driver)
    for number in range(3):
        put(fresh, number)
        fresh("bury", number)
    assert fresh("kick", *args) == [kicked]
    assert fresh.statistics()["tasks"]["buried"] == 3 - kicked
    assert fresh.statistics()["calls"]["kick"] == kicked


@pytest.mark.parametrize("count", ["many", {}, True])
def test_kick_count_must_be_a_number(tube: Callable[..., Tube], count: Any) -> None:
    error = refusal(lambda: tube("fifo")("kick", count))
    assert (error.code, error.text) == (32, "'for' limit must be a number")


# -- whole tubes -----------------------------------------------------------------------------------


def test_truncate_restarts_ids(tube: Callable[..., Tube]) -> None:
    fresh = tube("utube")
    put(fresh, "x", {"utube": "a"})
    put(fresh, "y", {"utube": "a"})
    fresh("take", 0)
    assert fresh("truncate") == []
    calls = fresh.statistics()["calls"]
    assert put(fresh, "z", {"utube": "a"}) == 0
    assert fresh("take", 0) == [[0, "t", "z"]], "the sub-queue is not busy any more"
    assert calls["delete"] == 0


def test_release_all_whoever_holds_them(
    tube: Callable[..., Tube], server: Server, connect: Callable[..., Any]
) -> None:
    fresh = tube("fifo")
    for number in range(3):
        put(fresh, number)
    fresh("take", 0)
    fresh.of(connect(server, "tarantool"))("take", 0)
    assert fresh("release_all") == []
    found = fresh.statistics()
    assert found["tasks"]["ready"] == 3
    assert found["calls"]["release"] == 2
    assert refusal(lambda: fresh("ack", 0)).text == "Task was not taken"


def test_bury_any_task_of_anybody(
    tube: Callable[..., Tube], server: Server, connect: Callable[..., Any]
) -> None:
    fresh = tube("fifo")
    put(fresh, "x")
    stranger = fresh.of(connect(server, "tarantool"))
    stranger("take", 0)
    assert fresh("bury", 0) == [[0, "!", "x"]]
    assert refusal(lambda: stranger("ack", 0)).text == "Task was not taken"
    assert fresh.statistics()["calls"]["bury"] == 1
    fresh("bury", 0)
    assert fresh.statistics()["calls"]["bury"] == 1, "burying the buried is no event"


def test_peek_leaves_no_trace(tube: Callable[..., Tube]) -> None:
    fresh = tube("utubettl")
    put(fresh, {"deep": [1]})
    before = fresh.statistics()
    assert fresh("peek", 0) == [[0, "r", {"deep": [1]}]]
    assert fresh.statistics() == before


def test_drop(tube: Callable[..., Tube]) -> None:
    fresh = tube("fifo")
    put(fresh, "x")
    assert fresh("drop") == [True]
    assert call(fresh.conn, "queue.tube", fresh.name) == [False]
    assert refusal(lambda: fresh("put", "y")).code == 33


def test_on_task_change_is_for_code_inside_the_node(tube: Callable[..., Tube]) -> None:
    """The original clears the callback and then fails to send the old one."""
    assert refusal(lambda: tube("fifo")("on_task_change")).code == 32


def test_grant_answers_nothing(tube: Callable[..., Tube]) -> None:
    fresh = tube("fifo")
    assert fresh("grant", "somebody") == []
    assert fresh("grant", "somebody", {"call": True, "truncate": True}) == []
    assert fresh("grant_role", "some_role", {"call": True, "prefix": "jobs"}) == []


@pytest.mark.parametrize("name", ["a b-c.d", "tube-with-dashes", "ü", "x" * 300])
def test_tube_names_are_free(raw: Raw, name: str) -> None:
    raw.call("queue.create_tube", name, "fifo")
    assert raw.call("queue.tube", name) == [True]
    if "." not in name:
        assert raw.call(f"queue.tube.{name}:put", "x") == [[0, "r", "x"]]
    assert raw.eval("local name = ... ; return queue.tube[name] ~= nil", name) == [True]


@pytest.mark.parametrize(
    ("option", "value"),
    [("temporary", "yes"), ("if_not_exists", 1), ("engine", "x"), ("storage_mode", 5), ("x", 1)],
)
def test_create_tube_options_are_checked(raw: Raw, option: str, value: Any) -> None:
    """Each of a known name and type; the original takes what it does not know and keeps it."""
    name = f"bad_{option}_option"
    error = refusal(lambda: raw.call("queue.create_tube", name, "utube", {option: value}))
    assert error.code == 32
    assert option in error.text.replace(name, "")
    assert raw.call("queue.tube", name) == [False]


def test_a_wrong_type_is_called_by_its_name(raw: Raw) -> None:
    tube = new_tube(raw, "fifo")
    for value, name in ((5, "number"), (1.5, "number"), (True, "boolean"), ("x", "string")):
        error = refusal(lambda value=value: tube("put", "x", value))  # type: ignore[misc]
        assert error.text.endswith(f"got {name}")


@pytest.mark.parametrize("method", ["take", "ack", "release", "touch"])
def test_unknown_options_are_refused(raw: Raw, method: str) -> None:
    tube = new_tube(raw, "fifottl")
    tube("put", "x")
    args: tuple[Any, ...] = (0,) if method == "take" else (0, 1) if method == "touch" else (0,)
    if method != "take":
        tube("take", 0)
    error = refusal(lambda: tube(method, *args, {"tokn": 1}))
    assert error.code == 32
    assert "Unknown option tokn" in error.text


def test_call_16_wraps_what_is_no_array(raw: Raw) -> None:
    tube = new_tube(raw, "fifo")
    name = f"queue.tube.{tube.name}"
    assert raw.call_16(f"{name}:put", "x") == [[0, "r", "x"]]
    assert raw.call_16(f"{name}:kick") == [[0]]
    assert raw.call_16("queue.state") == [["RUNNING"]]
    assert raw.call_16(f"{name}:take", 0) == [[0, "t", "x"]]
    assert raw.call_16(f"{name}:take", 0) == []
    assert raw.call_16(f"{name}:ack", 0) == [[0, "-", "x"]]
    assert raw.call_16("queue.statistics", tube.name)[0][0]["calls"]["put"] == 1
    assert raw.call_16(f"{name}:drop") == [[True]]
