"""Every error text and code of the original that a client can meet on one node.

The original puts a file path and a line before its own texts; here the text stands alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.compat_client import TUPLE, Raw, Tube, call, new_tube, refusal
from tests.compat.compat_server import Server


def expect(code: int, text: str, action: Callable[[], Any]) -> None:
    error = refusal(action)
    assert (error.code, error.text) == (code, text)


def expect_within(code: int, text: str, action: Callable[[], Any]) -> None:
    """The text is part of a longer one that also names the field and what it accepts."""
    error = refusal(action)
    assert error.code == code
    assert text in error.text


@pytest.mark.parametrize("method", ["ack", "release", "touch"])
def test_not_taken(tube: Callable[..., Tube], method: str) -> None:
    fresh = tube("fifottl")
    fresh("put", "x")
    args = (0, 1) if method == "touch" else (0,)
    expect(32, "Task was not taken", lambda: fresh(method, *args))


@pytest.mark.parametrize("method", ["peek", "bury", "delete"])
def test_not_found(tube: Callable[..., Tube], method: str) -> None:
    fresh = tube("fifo")
    expect(32, "Task 17 not found", lambda: fresh(method, 17))
    big = 2**64 - 1
    expect(32, f"Task {big} not found", lambda: fresh(method, big))


def test_drop_with_a_waiting_consumer(
    raw: Raw, connect: Callable[..., Any], server: Server
) -> None:
    tube = new_tube(raw, "fifo")
    waiting = tube.start("take", 10)
    assert raw.silent(0.02)
    expect(32, "There are consumers connected the tube", lambda: tube.of(connect(server))("drop"))
    tube("put", "x")
    assert raw.answer(waiting) == [[0, "t", "x"]]
    expect(32, "There are taken tasks in the tube", lambda: tube("drop"))
    tube("ack", 0)
    assert tube("drop") == [True]


def test_undefined_procedures(conn: Any, tube: Callable[..., Tube]) -> None:
    fresh = tube("fifo")
    for name in (
        "queue.tube.zzz:peek",
        f"queue.tube.{fresh.name}:nonsense",
        f"queue.tube.{fresh.name}",
        "queue._VERSION",
        "queue.nonsense",
        "nonsense",
        "queue",
        "",
    ):
        expect(33, f"Procedure '{name}' is not defined", lambda name=name: call(conn, name))


def test_create_tube_errors(conn: Any, tube: Callable[..., Tube]) -> None:
    create = "queue.create_tube"
    fresh = tube("fifo")
    taken = f"Space '{fresh.name}' already exists"
    expect(32, taken, lambda: call(conn, create, fresh.name, "fifo"))
    expect(32, "Unknown tube type nope", lambda: call(conn, create, "never", "nope"))
    expect(32, "Unknown tube type nil", lambda: call(conn, create, "never"))
    expect(
        32,
        "limfifottl queue does not support vinyl engine",
        lambda: call(conn, create, "never", "limfifottl", {"engine": "vinyl"}),
    )
    for driver in ("utube", "utubettl"):
        options = {"engine": "vinyl", "storage_mode": "ready_buffer"}
        expect(
            32,
            '"ready_buffer" storage mode cannot be used with vinyl engine',
            lambda driver=driver, options=options: call(conn, create, "never", driver, options),
        )
    expect(
        12,
        "Can't modify space 'never': engine does not support temporary flag",
        lambda: call(conn, create, "never", "fifo", {"engine": "vinyl", "temporary": True}),
    )
    assert call(conn, "queue.tube", "never") == [False]


@pytest.mark.parametrize("name", ["", "a\nb", "\x00", "x" * 70_000])
def test_bad_tube_names(conn: Any, name: str) -> None:
    expect(
        70,
        f"Invalid identifier '{name}' (expected printable symbols only or it is too long)",
        lambda: call(conn, "queue.create_tube", name, "fifo"),
    )


def test_create_tube_that_exists(conn: Any, tube: Callable[..., Tube]) -> None:
    """`if_not_exists` returns the one that is there if it is the one asked for."""
    fresh = tube("fifottl", ttl=5)
    again = {"if_not_exists": True}
    call(conn, "queue.create_tube", fresh.name, "fifottl", {**again, "ttl": 5})
    call(conn, "queue.create_tube", fresh.name, "fifottl", again)
    expect(
        32,
        f"Tube {fresh.name} exists and differs: its type is fifottl, not fifo",
        lambda: call(conn, "queue.create_tube", fresh.name, "fifo", again),
    )
    expect(
        32,
        f"Tube {fresh.name} exists and differs: ttl is 5, not 9; "
        f"queue.alter_tube('{fresh.name}', ...) changes it",
        lambda: call(conn, "queue.create_tube", fresh.name, "fifottl", {**again, "ttl": 9}),
    )
    fresh("put", "x", {"ttr": 1})
    fresh("take", 0)
    assert fresh("touch", 0, 1) == [[0, "t", "x"]]


def test_tube_argument(conn: Any, tube: Callable[..., Tube]) -> None:
    expect(32, "argument #1 should be string or nil", lambda: call(conn, "queue.tube", 5))
    fresh = tube("fifo")
    (names,) = call(conn, "queue.tube")
    assert fresh.name in names
    assert call(conn, "queue.tube", fresh.name) == [True]


@pytest.mark.parametrize("driver", ["fifo", "utube"])
def test_touch_unsupported(tube: Callable[..., Tube], driver: str) -> None:
    fresh = tube(driver)
    fresh("put", "x")
    fresh("take", 0)
    expect(32, f"{driver} queue does not support touch", lambda: fresh("touch", 0, 1))


@pytest.mark.parametrize("uuid", ["", "short", "x" * 36, 5, {}, "x" * 17], ids=repr)
def test_identify_format(raw: Raw, uuid: Any) -> None:
    expect(32, "Invalid UUID format.", lambda: raw.call("queue.identify", uuid))


def test_identify_unknown(raw: Raw) -> None:
    uuid = "".join(map(chr, range(16)))
    expect(
        32,
        "The UUID 03020100-0504-0706-0809-0a0b0c0d0e0f is unknown.",
        lambda: raw.call("queue.identify", uuid),
    )


def test_cfg_errors(conn: Any) -> None:
    cfg = "queue.cfg"
    expect(32, "Unknown option nonsense", lambda: call(conn, cfg, {"nonsense": 1}))
    for value in (-1, -0.5):
        expect_within(
            32,
            f"Invalid value of ttr: {value}",
            lambda value=value: call(conn, cfg, {"ttr": value}),
        )
    for value in ("5", {}, True):
        expect_within(
            32, "Invalid value of ttr: ", lambda value=value: call(conn, cfg, {"ttr": value})
        )
    for value in (1, "true"):
        expect_within(
            32,
            "Invalid value of in_replicaset: ",
            lambda value=value: call(conn, cfg, {"in_replicaset": value}),
        )


def test_register_driver_over_the_wire(conn: Any) -> None:
    """A driver is code; what a remote caller can send never is one."""
    expect_within(
        32,
        'tube control methods must contain functions "create_space" and "new"',
        lambda: call(conn, "queue.register_driver", "mine", {}),
    )
    expect(
        32,
        'overriding registered driver "fifo"',
        lambda: call(conn, "queue.register_driver", "fifo", {}),
    )


@pytest.mark.parametrize("driver", ["fifottl", "limfifottl", "utubettl"])
def test_wrong_types_of_times(tube: Callable[..., Tube], driver: str) -> None:
    fresh = tube(driver)
    fresh("put", "x")
    fresh("take", 0)
    text = "attempt to compare string with number"
    for option in ("ttl", "ttr", "delay"):
        put = ("put", "x", {option: "1"})
        expect_within(32, text, lambda put=put: fresh(*put))
    expect_within(32, text, lambda: fresh("release", 0, {"delay": "1"}))
    expect_within(32, text, lambda: fresh("touch", 0, "1"))
    expect_within(32, text, lambda: fresh("take", "1"))


def test_limfifottl_timeout_type(tube: Callable[..., Tube]) -> None:
    fresh = tube("limfifottl", capacity=1)
    fresh("put", "x")
    expect_within(
        32,
        "attempt to compare string with number",
        lambda: fresh("put", "y", {"timeout": "1"}),
    )


def test_statistics_of_an_unknown_tube(conn: Any) -> None:
    expect_within(
        32, "attempt to index a nil value", lambda: call(conn, "queue.statistics", "nope")
    )


@pytest.mark.parametrize("driver", ["fifottl", "limfifottl", "utubettl"])
def test_priority_type(tube: Callable[..., Tube], driver: str) -> None:
    for pri in (-1, 0.5, "1"):
        expect_within(
            23,
            "Tuple field 6 type does not match one required by operation: expected unsigned",
            lambda pri=pri: tube(driver)("put", "x", {"pri": pri}),
        )


def test_temporary_tube_in_replicaset_mode(
    launch: Callable[..., Server], connect: Callable[..., Any]
) -> None:
    conn = connect(launch())
    call(conn, "queue.cfg", {"in_replicaset": True})
    expect(
        32,
        "Cannot create temporary tube in replicaset mode",
        lambda: call(conn, "queue.create_tube", "brief", "fifo", {"temporary": True}),
    )
    call(conn, "queue.cfg", {"in_replicaset": False})
    call(conn, "queue.create_tube", "brief", "fifo", {"temporary": True})
    assert call(conn, "queue.cfg", {"in_replicaset": True}) == [], "refused in the log only"
    call(conn, "queue.create_tube", "brief too", "fifo", {"temporary": True})


# -- the shape of an error -------------------------------------------------------------------------


def test_error_stack(raw: Raw) -> None:
    """Connectors want all of type, file, line, message, errno and code."""
    tube = new_tube(raw, "fifo")
    error = refusal(lambda: tube("peek", 5))
    (frame,) = error.frames
    assert set(frame) >= {0, 1, 2, 3, 4, 5}
    assert (frame[0], frame[3], frame[5]) == ("LuajitError", "Task 5 not found", 32)
    (frame,) = refusal(lambda: raw.call("nope")).frames
    assert (frame[0], frame[5]) == ("ClientError", 33)


def test_unsupported_requests_leave_the_connection_usable(raw: Raw) -> None:
    wanted = {
        0x0B: 5,
        0x0D: 5,
        0x0E: (5, 48),
        0x0F: (5, 48),
        0x02: (36, 42),
        0x05: (36, 42),
        0x41: 48,
    }
    for kind, codes in {**wanted, 0x3E: 48}.items():
        body = {0x10: 512, TUPLE: []} if kind < 6 else {}
        error = refusal(lambda kind=kind, body=body: raw.answer(raw.send(kind, body)))
        assert error.code in (codes if isinstance(codes, tuple) else (codes,)), hex(kind)
        assert error.text
        raw.ping()


def test_eval_of_anything_else(raw: Raw) -> None:
    error = refusal(lambda: raw.eval("return os.execute('true')"))
    assert error.code == 32
    assert "Lua" in error.text
    expect_within(
        32, "attempt to index field 'zzz' (a nil value)", lambda: raw.eval("queue.tube.zzz:take(0)")
    )
