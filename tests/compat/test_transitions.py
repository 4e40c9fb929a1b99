"""What each operation does to a task in each state, for all five drivers.

Expected outcomes are those of the original's transition matrix; one fresh tube per cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.compat_client import Refused, Tube, eventually, new_tube
from tests.compat.compat_server import Server

DRIVERS = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")
TTL_DRIVERS = ("fifottl", "limfifottl", "utubettl")
NOT_TAKEN = "Task was not taken"
NOT_FOUND = "Task 0 not found"
# Operation on a state -> the answer's status, the error's text, or a plain value.
MATRIX: dict[tuple[str, str], Any] = {
    ("take", "r"): "t",
    ("take", "t"): [],
    ("take", "other"): [],
    ("take", "!"): [],
    ("take", "~"): [],
    ("take", "missing"): [],
    ("ack", "r"): NOT_TAKEN,
    ("ack", "t"): "-",
    ("ack", "other"): NOT_TAKEN,
    ("ack", "!"): NOT_TAKEN,
    ("ack", "~"): NOT_TAKEN,
    ("ack", "missing"): NOT_TAKEN,
    ("release", "r"): NOT_TAKEN,
    ("release", "t"): "r",
    ("release", "other"): NOT_TAKEN,
    ("release", "!"): NOT_TAKEN,
    ("release", "~"): NOT_TAKEN,
    ("release", "missing"): NOT_TAKEN,
    ("touch", "r"): NOT_TAKEN,
    ("touch", "t"): "t",
    ("touch", "other"): NOT_TAKEN,
    ("touch", "!"): NOT_TAKEN,
    ("touch", "~"): NOT_TAKEN,
    ("touch", "missing"): NOT_TAKEN,
    ("bury", "r"): "!",
    ("bury", "t"): "!",
    ("bury", "other"): "!",
    ("bury", "!"): "!",
    ("bury", "~"): "!",
    ("bury", "missing"): NOT_FOUND,
    ("delete", "r"): "-",
    ("delete", "t"): "-",
    ("delete", "other"): "-",
    ("delete", "!"): "-",
    ("delete", "~"): "-",
    ("delete", "missing"): NOT_FOUND,
    ("kick", "r"): [0],
    ("kick", "t"): [0],
    ("kick", "other"): [0],
    ("kick", "!"): [1],
    ("kick", "~"): [0],
    ("kick", "missing"): [0],
    ("peek", "r"): "r",
    ("peek", "t"): "t",
    ("peek", "other"): "t",
    ("peek", "!"): "!",
    ("peek", "~"): "~",
    ("peek", "missing"): NOT_FOUND,
}
ARGUMENTS = {"take": (0,), "kick": (1,), "touch": (0, 5)}


def cells() -> list[tuple[str, str, str]]:
    return [
        (driver, method, state)
        for driver in DRIVERS
        for method, state in MATRIX
        if state != "~" or driver in TTL_DRIVERS
    ]


def bring(tube: Tube, other: Tube, state: str) -> None:
    """Put task 0 of a fresh tube into a state; `other` is a stranger's view of the tube."""
    tube("put", "x", {"delay": 100} if state == "~" else None)
    if state == "t":
        tube("take", 0)
    elif state == "other":
        other("take", 0)
    elif state == "!":
        tube("bury", 0)
    elif state == "missing":
        tube("delete", 0)


@pytest.fixture
def pair(server: Server, connect: Callable[..., Any]) -> tuple[Any, Any]:
    return connect(server, "tarantool"), connect(server, "tarantool")


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("state", ["r", "t", "other", "!", "~", "missing"])
def test_every_operation(pair: tuple[Any, Any], driver: str, state: str) -> None:
    for cell_driver, method, cell_state in cells():
        if (cell_driver, cell_state) != (driver, state):
            continue
        tube = new_tube(pair[0], driver)
        bring(tube, tube.of(pair[1]), state)
        check_cell(tube, driver, method, state)


def check_cell(tube: Tube, driver: str, method: str, state: str) -> None:
    expected = MATRIX[method, state]
    if (method, state) == ("touch", "t") and driver in ("fifo", "utube"):
        expected = f"{driver} queue does not support touch"
    try:
        answer: Any = tube(method, *ARGUMENTS.get(method, (0,)))
    except Refused as error:
        assert isinstance(expected, str), f"{method} on {state}: {error}"
        assert len(expected) > 1, f"{method} on {state}: {error}"
        assert (error.code, error.text) == (32, expected)
        return
    if isinstance(expected, str):
        assert answer == [[0, expected, "x"]], f"{method} on {state}: {answer}"
    else:
        assert answer == expected, f"{method} on {state}: {answer}"


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_deadlines(pair: tuple[Any, Any], driver: str) -> None:
    """ttl removes what is ready or buried; ttr and delay make ready; what is delayed stays."""
    tube = new_tube(pair[0], driver)
    short = {"ttl": 0.1}
    tube("put", "ready", {"utube": "a", **short})
    tube("put", "buried", {"utube": "b", **short})
    tube("bury", 1)
    tube("put", "returns", {"utube": "c", "ttr": 0.1, "pri": 1})
    tube("put", "delayed", {"utube": "d", "ttl": 0.01, "delay": 20})
    tube("put", "comes", {"utube": "e", "delay": 0.1})
    assert tube("take", 0)[0][2] == "ready"
    tube("release", 0)
    eventually(lambda: tube.statistics()["calls"]["ttl"] == 2)
    assert tube("take", 1)[0][2] in ("returns", "comes")
    eventually(lambda: tube.statistics()["calls"]["delay"] == 1)
    found = tube.statistics()
    assert found["tasks"]["delayed"] == 1
    assert found["tasks"]["total"] == 3
    assert found["tasks"]["done"] == 2


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_ttr_of_a_taken_task(pair: tuple[Any, Any], driver: str) -> None:
    tube = new_tube(pair[0], driver)
    tube("put", "x", {"ttr": 0.05})
    tube("take", 0)
    assert tube.of(pair[1])("take", 5) == [[0, "t", "x"]]
    assert tube.statistics()["calls"]["ttr"] == 1
    with pytest.raises(Refused, match=NOT_TAKEN):
        tube("ack", 0)


@pytest.mark.parametrize("driver", DRIVERS)
def test_owner_disconnects(
    server: Server, connect: Callable[..., Any], conn: Any, driver: str
) -> None:
    tube = new_tube(conn, driver)
    tube("put", "x")
    leaving = connect(server, "tarantool")
    assert tube.of(leaving)("take") == [[0, "t", "x"]]
    leaving.close()
    assert tube("take", 5) == [[0, "t", "x"]]
    assert tube.statistics()["calls"]["release"] == 1


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_release_with_delay(pair: tuple[Any, Any], driver: str) -> None:
    tube = new_tube(pair[0], driver)
    tube("put", "x")
    tube("take", 0)
    assert tube("release", 0, {"delay": 0.05}) == [[0, "~", "x"]]
    assert tube("take", 5) == [[0, "t", "x"]]


@pytest.mark.parametrize("driver", ["fifo", "utube"])
def test_release_ignores_delay(pair: tuple[Any, Any], driver: str) -> None:
    tube = new_tube(pair[0], driver)
    tube("put", "x", {"delay": 50, "ttl": 1, "ttr": 1, "pri": 4})
    tube("take", 0)
    assert tube("release", 0, {"delay": 100}) == [[0, "r", "x"]]
