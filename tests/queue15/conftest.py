"""Fixtures of the queue15 tests: an engine with a space 0, and a real server with stock connectors.

Helpers are those of the engine's and the compatibility tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tarantool

from tests.engine.engine_bench import assert_replica_agrees
from tests.queue15.client15 import Client, Connect
from tests.queue15.queue15_bench import Calls, make
from tests.queue15.server15 import Dialects


@pytest.fixture
def calls() -> Iterator[Calls]:
    """Whatever a test does, its log applied elsewhere must give an equal state."""
    one = make()
    yield one
    assert_replica_agrees(one.bench)


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


@pytest.fixture
def client(dial: Connect) -> Client:
    return Client(dial())


@pytest.fixture
def other(dial: Connect, client: Client) -> Client:
    return Client(dial(), client.tube)
