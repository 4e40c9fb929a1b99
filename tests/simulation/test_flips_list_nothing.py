"""A flip looks at nothing in the data directory: who observes it reads counters."""

from __future__ import annotations

import dataclasses
from collections import Counter
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tandemq.log.disk import RESCUE_PREFIX
from tandemq_server.node.observe.backend import NodeBackend
from tandemq_server.storage.memory import MemoryDisk
from tests.simulation.sim_node import SimNode
from tests.simulation.sim_world import MS, Network, World

FLIPS = 10


class WatchedDisk(MemoryDisk):
    """Counts who lists it or asks for sizes."""

    asked: ClassVar[Counter[str]] = Counter()

    def list(self) -> list[str]:
        self.asked["list"] += 1
        return super().list()

    def size(self, name: str) -> int:
        self.asked["size"] += 1
        return super().size(name)


class Pair:
    """Two nodes with everything that observes them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(WatchedDisk, "asked", Counter())
        self.world = World(1)
        network = Network(self.world)
        self.nodes: dict[str, SimNode] = {}
        self.backends: dict[str, NodeBackend] = {}
        for name, other in (("a", "b"), ("b", "a")):
            node = SimNode(self.world, network, name, [other])
            node.machines = self.nodes
            node.options = {"wal_mode": "fsync"}
            node.read_only = name != "a"
            node.disk = WatchedDisk(where=name)
            self.nodes[name] = node
        for name, node in self.nodes.items():
            node.start()
            self.backends[name] = self._observed(node)
        self.until("a", "RUNNING")
        self.until("b", "WAITING", "INIT")
        self.world.run(self.world.now + 500 * MS)

    def _observed(self, node: SimNode) -> NodeBackend:
        snapshots: Any = SimpleNamespace(last_lsn=0, longest_pause_s=0.0)
        backend = NodeBackend(
            node.settings(),
            node.core,
            node.wal,
            node.storage,
            snapshots,
            node.role,
            node.peering,
            "epoch",
        )
        backend.subscribe()
        return backend

    def until(self, name: str, *states: str) -> None:
        core = self.nodes[name].core
        assert self.world.run_while(lambda: core.state not in states, 30), f"{name}: {core.state}"

    def flip(self, old: str, new: str) -> None:
        self.nodes[old].role.request(True)
        self.until(old, "WAITING")
        self.nodes[new].role.request(False)
        self.until(new, "RUNNING")
        self.world.run(self.world.now + 300 * MS)


def test_flips_list_and_size_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch)
    # What is opened once, by the first frame after a change of roles, is open from then on.
    pair.flip("a", "b")
    pair.flip("b", "a")
    WatchedDisk.asked.clear()
    for _ in range(FLIPS // 2):
        pair.flip("a", "b")
        pair.flip("b", "a")
    assert not WatchedDisk.asked


def test_looking_at_a_node_lists_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch)
    WatchedDisk.asked.clear()
    for backend in pair.backends.values():
        dataclasses.asdict(backend.status())
        backend.metrics()
        backend.sample()
        backend.cluster()
    assert not WatchedDisk.asked


def test_rescue_files_that_come_and_go_are_counted_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair(monkeypatch)
    node, backend = pair.nodes["a"], pair.backends["a"]
    assert backend.status().rescue_files == 0
    name = f"{RESCUE_PREFIX}0000000002-00000000000000000186.wal"
    node.disk.close(node.disk.create(name))
    assert backend.status().rescue_files == 0
    node.storage.count_rescues()
    assert backend.status().rescue_files == backend.metrics().rescue_files == 1
    node.disk.remove(name)
    node.storage.count_rescues()
    assert backend.status().rescue_files == 0
