"""Two nodes that both say RUNNING: whoever looks for the master takes the newest term's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import tandemq
from demo.team import Guide
from tandemq.spark.target import Target
from tandemq_server.cli.remote import Remote
from tests.cluster.cluster_nodes import Member
from tests.ports import free_ports


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Member, Member]]:
    """The superseded node, and the one of the newer term; they cannot hear each other."""
    ports = free_ports(4)
    home = tmp_path_factory.mktemp("split")
    old = Member(home, "old", ports[0], ports[2], []).start()
    new = Member(home, "new", ports[1], ports[3], []).start()
    assert new.role(True)[0] == new.role(False)[0] == 200
    assert (old.status()["term"]["number"], new.status()["term"]["number"]) == (1, 2)
    try:
        yield old, new
    finally:
        old.end()
        new.end()


@pytest.fixture(params=["older first", "newer first"])
def nodes(request: pytest.FixtureRequest, split: tuple[Member, Member]) -> list[tuple[str, int]]:
    ordered = split if request.param == "older first" else reversed(split)
    return [("127.0.0.1", member.port) for member in ordered]


def served(connection: object) -> int:
    port: int = connection.port  # type: ignore[attr-defined]
    return port


def test_the_command_line(nodes: list[tuple[str, int]], split: tuple[Member, Member]) -> None:
    remote = Remote(*nodes[0], others=tuple(nodes[1:]))

    async def look() -> int:
        connection = await remote.connect()
        try:
            return served(connection)
        finally:
            await connection.disconnect()

    assert asyncio.run(look()) == split[1].port


def test_the_sink(nodes: list[tuple[str, int]], split: tuple[Member, Member]) -> None:
    async def look() -> int:
        target = Target(nodes, "jobs", timeout_s=5)
        connection = await target.connect()
        try:
            return served(connection)
        finally:
            await connection.disconnect()

    assert asyncio.run(look()) == split[1].port


def test_the_demo(nodes: list[tuple[str, int]], split: tuple[Member, Member]) -> None:
    async def look() -> str:
        guide = Guide({str(port): port for _, port in nodes}, 5.0)
        try:
            return await guide.master()
        finally:
            await guide.close()

    assert asyncio.run(look()) == str(split[1].port)


def test_the_client(nodes: list[tuple[str, int]], split: tuple[Member, Member]) -> None:
    async def look() -> str:
        where = ",".join(f"{host}:{port}" for host, port in nodes)
        async with tandemq.connect(where) as client:
            return str(client.node)

    assert asyncio.run(look()) == f"127.0.0.1:{split[1].port}"
