"""A real haproxy with the configuration of deploy/: connections follow the flip."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tarantool

from tests.cluster.cluster_nodes import Pair, free_ports, until
from tests.deploy.conftest import DEPLOY, program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def environment(nodes: Pair, ports: list[int]) -> dict[str, str]:
    found = {"BIND": f"127.0.0.1:{ports[0]}", "BIND_READ": f"127.0.0.1:{ports[1]}"}
    for member in (nodes.a, nodes.b):
        key = f"NODE_{member.name.upper()}"
        found[key] = f"127.0.0.1:{member.port}"
        found[f"{key}_ADMIN_HOST"] = "127.0.0.1"
        found[f"{key}_ADMIN_PORT"] = str(member.admin_port)
    return {**os.environ, **found}


@pytest.fixture
def proxy(nodes: Pair, tmp_path: Path) -> Iterator[list[int]]:
    """The ports for writers and for readers."""
    ports = free_ports(2)
    command = [program("haproxy"), "-db", "-f", str(DEPLOY / "haproxy" / "haproxy.cfg")]
    log = (tmp_path / "haproxy.log").open("wb")
    running = subprocess.Popen(command, env=environment(nodes, ports), stdout=log, stderr=log)
    yield ports
    running.terminate()
    running.wait(10)
    log.close()


def name_behind(port: int) -> str | None:
    """Who answers there, or None."""
    try:
        client = tarantool.Connection(
            "127.0.0.1", port, fetch_schema=False, connection_timeout=2, socket_timeout=2
        )
    except (tarantool.Error, OSError):
        return None
    found = answers(client)
    client.close()
    return found


def answers(client: tarantool.Connection) -> str | None:
    """The id of the node at the other end, or None."""
    try:
        return str(client.call("box.info").data[0]["uuid"])
    except (tarantool.Error, OSError):
        return None


def settled(port: int, node_id: str) -> bool:
    """haproxy takes a server for up until a check says otherwise: ask some times in a row."""
    for _ in range(10):
        if name_behind(port) != node_id:
            return False
        time.sleep(0.1)
    return True


def test_connections_follow_the_flip(nodes: Pair, proxy: list[int]) -> None:
    writers, _ = proxy
    ids = {member.name: member.status()["node_id"] for member in (nodes.a, nodes.b)}
    until(lambda: settled(writers, ids["a"]))
    client = tarantool.Connection("127.0.0.1", writers, fetch_schema=False, socket_timeout=10)
    client.call("queue.create_tube", "jobs", "fifo")
    client.call("queue.tube.jobs:put", "before")
    nodes.a.switch_to(nodes.b)
    # The connection to the former master is ended, so that a client need not find out by itself:
    # the connector dials again and meets the other node. A connection left alone would stay with a.
    until(lambda: answers(client) == ids["b"])
    until(lambda: settled(writers, ids["b"]))
    again = tarantool.Connection("127.0.0.1", writers, fetch_schema=False, socket_timeout=10)
    again.call("queue.tube.jobs:put", "after")
    assert again.call("queue.statistics", "jobs").data[0]["tasks"]["total"] == 2
    again.close()
    client.close()


def test_readers_reach_any_copy_that_is_fed(nodes: Pair, proxy: list[int]) -> None:
    _, readers = proxy
    ids = {member.status()["node_id"] for member in (nodes.a, nodes.b)}
    found: set[str | None] = set()

    def both() -> bool:
        found.add(name_behind(readers))
        return ids <= found

    until(both, every=0.1)


@pytest.mark.parametrize("folder", ["haproxy", "docker"])
def test_the_configuration_is_valid(folder: str, nodes: Pair, tmp_path: Path) -> None:
    # Names of containers mean nothing here.
    text = (DEPLOY / folder / "haproxy.cfg").read_text()
    for name in ("node-a", "node-b"):
        text = text.replace(f" {name}:", " 127.0.0.1:")
    found = tmp_path / "haproxy.cfg"
    found.write_text(text)
    command = [program("haproxy"), "-c", "-f", str(found)]
    done = subprocess.run(
        command, env=environment(nodes, free_ports(2)), capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
