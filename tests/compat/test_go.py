"""go-tarantool v2 and v3 with their queue package and pool, as a Go application uses them.

The program is tests/compat/go; it prints a line a step, and here is what each must say. For v3 its
module is tests/compat/go3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.compat_programs import build_go, steps
from tests.compat.compat_server import Server

EXPECTED: dict[str, Any] = {
    "does not exist": False,
    "create": None,
    "exists": True,
    "put": [0, "r", "data"],
    "put with options": [1, "~", {"a": 1}],
    "peek": [0, "r", "data"],
    "take": [0, "t", "data"],
    "touch": "t",
    "release with delay": None,
    "peek delayed": [0, "~", "data"],
    "take delayed": [0, "t", "data"],
    "release": None,
    "bury": None,
    "kick": 1,
    "ack": None,
    "delete": None,
    "take nothing": None,
    "statistics": "true",
    "alter": True,
    "release all": None,
    "state": True,
    "drop": None,
    "create utube": None,
    "take with wait": [0, "t", "wanted"],
    "take times out": None,
    "cfg": None,
    "cfg back": None,
    "identify": True,
    "identify on the other connection": True,
    "ack what the other connection took": None,
    "pipelining": [500, 0],
    "watch": ["running", False],
    "pool": True,
    "put through the pool": [500, "r", "pooled"],
}
REFUSED = {
    "ack again": (32, "Task was not taken"),
    "peek missing": (32, "Task 1 not found"),
    "no such tube": (33, "Procedure 'queue.tube.go_no_such_tube:put' is not defined"),
    "identify unknown": (32, "The UUID 03020100-0504-0706-0809-0a0b0c0d0e0f is unknown."),
}


@pytest.fixture(scope="module", params=(2, 3), ids=("v2", "v3"))
def program(request: pytest.FixtureRequest) -> Path:
    return build_go(request.param)


@pytest.fixture(scope="module")
def outcome(
    tmp_path_factory: pytest.TempPathFactory, program: Path
) -> Iterator[dict[str, dict[str, Any]]]:
    server = Server(tmp_path_factory.mktemp("go")).start()
    try:
        yield steps([str(program), "-address", f"127.0.0.1:{server.port}"])
    finally:
        server.stop()


@pytest.mark.parametrize("step", EXPECTED)
def test_step(outcome: dict[str, dict[str, Any]], step: str) -> None:
    assert outcome[step] == {"value": EXPECTED[step]}


@pytest.mark.parametrize("step", REFUSED)
def test_refused_step(outcome: dict[str, dict[str, Any]], step: str) -> None:
    code, text = REFUSED[step]
    assert outcome[step]["code"] == code
    assert text in outcome[step]["error"]


def test_no_other_step(outcome: dict[str, dict[str, Any]]) -> None:
    assert set(outcome) == {*EXPECTED, *REFUSED}


def test_settings_of_a_replica(launch: Callable[..., Server], program: Path) -> None:
    """The package's own high-availability example says queue.cfg to whoever it reaches."""
    replica = launch(flags=["--read-only"])
    found = steps([str(program), "-address", f"127.0.0.1:{replica.port}", "-only", "cfg"])
    assert found == {"state": {"value": 1}, "cfg": {"value": None}}


@pytest.mark.parametrize("password", ["worker's secret", ""])
def test_login(guarded: Server, program: Path, password: str) -> None:
    user = "worker" if password else "nopass"
    found = log_in(program, guarded, user, password)
    assert found == {"auth": {"value": True}, "ping": {"value": True}}


@pytest.mark.parametrize("user", ["worker", "nobody"])
def test_login_refused(guarded: Server, program: Path, user: str) -> None:
    found = log_in(program, guarded, user, "wrong")
    assert "User not found or supplied credentials are invalid" in found["auth"]["error"]
    assert set(found) == {"auth"}


def log_in(program: Path, server: Server, user: str, password: str) -> dict[str, dict[str, Any]]:
    command = [str(program), "-address", f"127.0.0.1:{server.port}", "-only", "auth"]
    return steps([*command, "-user", user, "-password", password])
