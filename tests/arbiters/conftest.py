"""Arbiters to try: in memory, etcd with one and with three members, the witness."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arbiters.arbiter_servers import EtcdCluster, WitnessProcess
from tests.arbiters.arbiter_worlds import KINDS, World, world_of
from tests.chaos.chaos_toxi import Server, serving


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arbiters")


@pytest.fixture(scope="session")
def etcd_one(homes: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(homes / "etcd-one", 1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def etcd_three(homes: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(homes / "etcd-three", 3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def witness(homes: Path) -> Iterator[WitnessProcess]:
    with WitnessProcess(homes / "witness") as process:
        yield process


@pytest.fixture(scope="session")
def toxiproxy(homes: Path) -> Iterator[Server]:
    with serving(homes) as server:
        yield server


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest) -> World:
    """An arbiter of each kind; what a test writes there nobody else sees."""
    return world_of(request.param, request.getfixturevalue)


@pytest.fixture(params=[kind for kind in KINDS if kind != "memory"])
def remote(request: pytest.FixtureRequest, toxiproxy: Server) -> Iterator[World]:
    """An arbiter of each kind that is a process, behind proxies."""
    world = world_of(request.param, request.getfixturevalue)
    yield world
    toxiproxy.heal()
