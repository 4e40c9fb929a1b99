"""Fixtures of the queue15 tests: an engine with a space 0, and a real server with stock connectors.

Helpers are shared with the engine's and the compatibility tests, whatever import mode is set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tarantool
import yaml

HERE = Path(__file__).resolve().parent
for _directory in (HERE, HERE.parent / "engine", HERE.parent / "compat"):
    sys.path.insert(0, str(_directory))

from compat_server import Server, free_port
from engine_bench import assert_replica_agrees
from queue15_bench import Calls, make

Connect = Callable[..., tarantool.Connection]


@pytest.fixture
def calls() -> Iterator[Calls]:
    """Whatever a test does, its log applied elsewhere must give an equal state."""
    one = make()
    yield one
    assert_replica_agrees(one.bench)


class Dialects(Server):
    """A server with a listener of each dialect and the space 0."""

    def __init__(self, directory: Path) -> None:
        self.port15 = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        config = {
            "listen_queue15": f"127.0.0.1:{self.port15}",
            "tubes": [{"name": "space0", "type": "queue15"}],
        }
        (directory / "node.yaml").write_text(yaml.safe_dump(config))
        super().__init__(directory, flags=["--config", str(directory / "node.yaml")])


@pytest.fixture(scope="session")
def server15(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dialects]:
    running = Dialects(tmp_path_factory.mktemp("queue15"))
    running.start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def dial(server15: Dialects) -> Iterator[Connect]:
    """`dial(old=True)`: a stock connection, to the listener that speaks queue15 unless told."""
    opened: list[tarantool.Connection] = []

    def open_one(old: bool = True) -> tarantool.Connection:
        port = server15.port15 if old else server15.port
        opened.append(tarantool.Connection("127.0.0.1", port))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()
