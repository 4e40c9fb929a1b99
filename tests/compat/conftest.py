"""Fixtures of the compatibility suite: servers that really run, connections, tubes.

What the server must answer belongs into the tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compat.compat_client import Raw, Stock, Tube, new_tube
from tests.compat.compat_server import Server


def chap_hash(password: str) -> str:
    """What a configuration keeps instead of a password: hex of sha1(sha1(password))."""
    return hashlib.sha1(hashlib.sha1(password.encode()).digest()).hexdigest()


def user(name: str, password: str, *grants: str) -> dict[str, Any]:
    """One entry of a configuration's `users`."""
    hashes = {"chap_sha1": chap_hash(password)}
    return {"name": name, "password_hash": hashes, "grants": list(grants)}


USERS = [
    user("worker", "worker's secret", "*"),
    user("nopass", "", "*"),
    user("stranger", "stranger's secret"),
]
CONNECTIONS = {"tarantool": Stock, "raw": Raw}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that leave its settings alone."""
    running = Server(tmp_path_factory.mktemp("compat")).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`launch(flags=[...], guest=True)`: a server of the test's own, its data in `tmp_path`."""
    started: list[Server] = []

    def start(name: str = "node", **options: Any) -> Server:
        started.append(Server(tmp_path / name, **options))
        return started[-1].start()

    yield start
    for running in started:
        if running.process is not None:
            running.stop()


@pytest.fixture
def connect() -> Iterator[Callable[..., Any]]:
    """`connect(server, kind="raw")`: connections that are closed when the test ends."""
    opened: list[Any] = []

    def open_one(server: Server, kind: str = "raw", **options: Any) -> Any:
        opened.append(CONNECTIONS[kind](server.port, **options))
        return opened[-1]

    yield open_one
    for conn in opened:
        conn.close()


@pytest.fixture
def conn(server: Server, connect: Callable[..., Any]) -> Any:
    """A stock connection to the common server."""
    return connect(server, "tarantool")


@pytest.fixture
def raw(server: Server, connect: Callable[..., Any]) -> Any:
    """A pipelining connection to the common server."""
    return connect(server)


@pytest.fixture
def tube(conn: Any) -> Callable[..., Tube]:
    """`tube("fifo", ttl=5)`: a fresh tube on the common server, by the stock connection."""

    def create(driver: str, **options: Any) -> Tube:
        return new_tube(conn, driver, **options)

    return create


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with users: worker and nopass (without a password) may do everything; stranger,
    like guest, nothing that was not granted.
    """
    directory = tmp_path_factory.mktemp("guarded")
    (directory / "node.yaml").write_text(yaml.safe_dump({"users": USERS}))
    running = Server(directory, flags=["--config", str(directory / "node.yaml")], guest=False)
    yield running.start()
    assert running.stop() == 0
