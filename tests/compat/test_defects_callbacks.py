"""Defects of the original around `on_task_change`: rows 6, 11, 12 and 22, and the order of events.

The callback is code inside the node, named in its configuration; here it writes down what it is
told, and raises when a file says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.compat.compat_client import Raw, Tube, call, eventually
from tests.compat.compat_server import Server

Open = Callable[..., Any]
CALLBACK = """
import json
import pathlib

HERE = pathlib.Path(__file__).parent


def watch(task, event):
    with (HERE / "events.jsonl").open("a") as events:
        events.write(json.dumps([event, task[0], task[1]]) + "\\n")
    if (HERE / "raise").exists():
        raise RuntimeError("as the test wants it")
"""
TUBES = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")


class Watched:
    """A server whose tubes, one a driver and named like it, report their events."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def events(self) -> list[list[Any]]:
        """[event, id, status] since the last time this was asked."""
        path = self.server.directory / "events.jsonl"
        if not path.exists():
            return []
        found = [json.loads(line) for line in path.read_text().splitlines()]
        path.unlink()
        return found

    def misbehave(self) -> None:
        (self.server.directory / "raise").touch()


@pytest.fixture
def watched(launch: Open, tmp_path: Any) -> Iterator[Watched]:
    directory = tmp_path / "node"
    directory.mkdir()
    (directory / "callbacks.py").write_text(CALLBACK)
    settings = {"on_task_change": dict.fromkeys(TUBES, "callbacks:watch")}
    (directory / "node.yaml").write_text(yaml.safe_dump(settings))
    node = launch("node", flags=["--config", str(directory / "node.yaml")])
    yield Watched(node)
    (directory / "raise").unlink(missing_ok=True)


@pytest.fixture
def conn(watched: Watched, connect: Open) -> Raw:
    opened: Raw = connect(watched.server)
    for name in TUBES:
        call(opened, "queue.create_tube", name, name)
    return opened


@pytest.mark.parametrize("driver", TUBES)
def test_events_in_order(watched: Watched, conn: Raw, driver: str) -> None:
    tube = Tube(conn, driver)
    tube("put", "x")
    tube("take", 0)
    tube("release", 0)
    tube("bury", 0)
    tube("bury", 0)
    tube("kick", 1)
    tube("take", 0)
    tube("release_all")
    tube("peek", 0)
    tube("take", 0)
    tube("ack", 0)
    tube("put", "y")
    tube("delete", 1)
    tube("truncate")
    assert watched.events() == [
        ["put", 0, "r"],
        ["take", 0, "t"],
        ["release", 0, "r"],
        ["bury", 0, "!"],
        ["kick", 0, "r"],
        ["take", 0, "t"],
        ["release", 0, "r"],
        ["take", 0, "t"],
        ["delete", 0, "-"],
        ["put", 1, "r"],
        ["delete", 1, "-"],
    ]


@pytest.mark.parametrize("driver", ["fifottl", "limfifottl", "utubettl"])
def test_deadlines_in_order(watched: Watched, conn: Raw, driver: str) -> None:
    tube = Tube(conn, driver)
    # Long enough for the touch to come in time on a slow machine.
    tube("put", "x", {"delay": 0.02, "ttr": 0.7})
    tube("take", 5)
    tube("take", 5)
    tube("touch", 0, 60)
    assert watched.events() == [
        ["put", 0, "~"],
        ["delay", 0, "r"],
        ["take", 0, "t"],
        ["ttr", 0, "r"],
        ["take", 0, "t"],
        ["touch", 0, "t"],
    ]


@pytest.mark.parametrize("driver", ["fifottl", "limfifottl", "utubettl"])
def test_defect_06_ttl_event_has_a_status(watched: Watched, conn: Raw, driver: str) -> None:
    tube = Tube(conn, driver)
    tube("put", "x", {"ttl": 0.02})
    eventually(lambda: tube.statistics()["tasks"]["total"] == 0)
    assert watched.events() == [["put", 0, "r"], ["delete", 0, "-"], ["ttl", 0, "-"]]


@pytest.mark.parametrize("driver", TUBES)
def test_defect_11_a_raising_callback_changes_nothing(
    watched: Watched, conn: Raw, driver: str
) -> None:
    watched.misbehave()
    tube = Tube(conn, driver)
    assert tube("put", "x") == [[0, "r", "x"]]
    assert tube("take", 0) == [[0, "t", "x"]]
    assert tube("release", 0) == [[0, "r", "x"]]
    assert tube("take", 0) == [[0, "t", "x"]]
    assert tube("ack", 0) == [[0, "-", "x"]]
    waiting = tube.start("take", 10)
    tube("put", "y")
    assert conn.answer(waiting) == [[1, "t", "y"]]
    assert tube.statistics()["calls"]["take"] == 3
    assert len(watched.events()) == 7


@pytest.mark.parametrize("driver", ["fifottl", "limfifottl", "utubettl"])
def test_defect_12_deadlines_survive_a_raising_callback(
    watched: Watched, conn: Raw, driver: str
) -> None:
    watched.misbehave()
    tube = Tube(conn, driver)
    tube("put", "x", {"ttl": 0.02})
    eventually(lambda: tube.statistics()["tasks"]["total"] == 0)
    tube("put", "y", {"delay": 0.02, "ttr": 0.02})
    assert tube("take", 5) == [[1, "t", "y"]]
    assert tube("take", 5) == [[1, "t", "y"]]
    tube("put", "z", {"ttl": 0.02})
    eventually(lambda: tube.statistics()["calls"]["ttl"] == 2)


def test_defect_22_callbacks_outlive_a_restart(watched: Watched, conn: Raw, connect: Open) -> None:
    Tube(conn, "fifo")("put", "x")
    watched.server.restart()
    watched.events()
    Tube(connect(watched.server), "fifo")("take", 0)
    assert watched.events() == [["take", 0, "t"]]
