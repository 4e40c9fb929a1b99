"""Makes the cluster's harness importable here; one node for all tests that need no second one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

import tandemq
from tests.client.cutter import Cutter
from tests.cluster.cluster_nodes import Member, free_ports


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """Writable, with sessions that outlive their connections."""
    ports = free_ports(2)
    member = Member(tmp_path_factory.mktemp("node"), "a", ports[0], ports[1], [])
    member.start("--in-replicaset", "--ttr", "30")
    yield member
    member.end()


@pytest_asyncio.fixture
async def direct(node: Member) -> AsyncIterator[tandemq.Client]:
    """A client of its own, straight to the node."""
    async with tandemq.connect(f"127.0.0.1:{node.port}") as client:
        yield client


@pytest_asyncio.fixture
async def cutter(node: Member) -> AsyncIterator[Cutter]:
    async with Cutter(node.port) as one:
        yield one


@pytest_asyncio.fixture
async def client(cutter: Cutter) -> AsyncIterator[tandemq.Client]:
    """A client whose way to the node leads through the cutter."""
    async with tandemq.connect(f"127.0.0.1:{cutter.port}", timeout=15) as one:
        yield one
