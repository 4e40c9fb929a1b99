"""cartridge-driver of Maven's repository, as a Java application uses it.

The program is tests/compat/java; it prints a line a step, and here is what each must say. Who names
no user logs in as guest with an empty password.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.compat_programs import build_java, steps
from tests.compat.compat_server import Server

EXPECTED: dict[str, Any] = {
    "connect": [1],
    "create": 1,
    "exists": [True],
    "put": [[0, "r", "data"]],
    "put with options": [[1, "r", {"a": [1, None]}]],
    "peek": [[0, "r", "data"]],
    "take": [[0, "t", "data"]],
    "touch": [[0, "t", "data"]],
    "release": [[0, "~", "data"]],
    "take with wait": [[1, "t", {"a": [1, None]}]],
    "bury": [[0, "!", "data"]],
    "kick": [1],
    "take again": [[0, "t", "data"]],
    "ack": [[0, "-", "data"]],
    "delete": [[1, "-", {"a": [1, None]}]],
    "take nothing": [],
    "state": ["RUNNING"],
    "alter": True,
    "version": True,
    # `client.space()` and `metadata()` read the schema by calls of `box.space._vspace:select`.
    "schema": "java_tasks",
    "select": [[2, "r"]],
    "drop": [True],
    "schema after the drop": False,
    "waits for the other connection": [[0, "t", "wanted"]],
    "pipelining": 200,
}
REFUSED = {
    "ack again": "Task was not taken",
    "peek missing": "Task 1 not found",
    "no such tube": "Procedure 'queue.tube.java_nothing:put' is not defined",
    "insert": "Write access to space 'java_tasks' is denied for user 'guest'",
    "owner only": "Task was not taken",
}
Steps = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steps]:
    program = build_java()
    server = Server(tmp_path_factory.mktemp("java")).start()
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


def test_no_other_step(outcome: Steps) -> None:
    assert set(outcome) == {*EXPECTED, *REFUSED}


def test_login(guarded: Server) -> None:
    found = steps([*build_java(), str(guarded.port), "worker", "worker's secret"])
    assert found["connect"] == {"value": [1]}
    assert "error" in found["another password"]
