"""tarantool-driver of npm, as a Node.js application uses it: every call is a CALL_16.

The program is tests/compat/node; it prints a line a step, and here is what each must say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.compat_programs import install_node, steps
from tests.compat.compat_server import Server

EXPECTED: dict[str, Any] = {
    "connect": True,
    "create": True,
    "exists": [True],
    "put": [[0, "r", "data"]],
    "put with options": [[1, "r", {"a": [1, None]}]],
    "peek": [[0, "r", "data"]],
    "take": [[0, "t", "data"]],
    "touch": [[0, "t", "data"]],
    "touch nothing": [],
    "release": [[0, "~", "data"]],
    "take with wait": [[1, "t", {"a": [1, None]}]],
    "bury": [[0, "!", "data"]],
    "kick": [[1]],
    "take again": [[0, "t", "data"]],
    "ack": [[0, "-", "data"]],
    "delete": [[1, "-", {"a": [1, None]}]],
    "take nothing": [],
    "state": [["RUNNING"]],
    "statistics": [2, 2],
    "alter": 7,
    "drop": [[True]],
    "waits for the other connection": [[0, "t", "wanted"]],
    "identify on two connections": True,
    "pipelining": [True, 200, True],
    "overtaking": ["ping", "take"],
}
REFUSED = {
    "ack again": "Task was not taken",
    "peek missing": "Task 1 not found",
    "no such tube": "Procedure 'queue.tube.node_nothing:put' is not defined",
    "owner only": "Task was not taken",
}
Steps = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steps]:
    program = install_node()
    server = Server(tmp_path_factory.mktemp("node")).start()
    try:
        yield steps([*program, str(server.port)])
    finally:
        server.stop()


@pytest.mark.parametrize("step", EXPECTED)
def test_step(outcome: Steps, step: str) -> None:
    assert outcome[step] == {"value": EXPECTED[step]}


@pytest.mark.parametrize("step", REFUSED)
def test_refused_step(outcome: Steps, step: str) -> None:
    assert REFUSED[step] in outcome[step]["error"]


def test_select_by_name(outcome: Steps) -> None:
    """The connector looks the space and its index up by name."""
    ((name, _number, space, kind, _opts),) = outcome["select by name"]["value"]
    assert (name, space, kind) == ("node_pipe", "node_pipe", "fifo")


def test_no_other_step(outcome: Steps) -> None:
    assert set(outcome) == {*EXPECTED, *REFUSED, "select by name"}


def test_login(guarded: Server) -> None:
    found = steps([*install_node(), str(guarded.port), "worker", "worker's secret"])
    assert found["connect"] == {"value": True}
    assert found["ping"] == {"value": True}


def test_login_refused(guarded: Server) -> None:
    found = steps([*install_node(), str(guarded.port), "worker", "wrong"])
    assert "error" in found["connect"] or "error" in found["ping"]
