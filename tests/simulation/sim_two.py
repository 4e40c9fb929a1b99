"""Two nodes and a script: what a test does to them, step by step, on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandemq_server.statemachine.effects import Settled
from tests.simulation.sim_clients import Call, Client, Connect, Script
from tests.simulation.sim_node import SimNode
from tests.simulation.sim_world import MS, SECOND, Network, World


class Two:
    """Nodes a and b. `options`: what `SimNode` takes, over short times and `ack: local`."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.machines: dict[str, SimNode] = {}
        for name, other in (("a", "b"), ("b", "a")):
            node = SimNode(self.world, self.network, name, [other])
            node.machines = self.machines
            node.options = {"wal_mode": "fsync", **options}
            self.machines[name] = node
        self.a, self.b = self.machines["a"], self.machines["b"]
        self.b.read_only = True
        self._tubes = 0

    def start(self) -> Two:
        """Both, a serving and b in step, with a tube."""
        self.a.start()
        self.b.start()
        self.until(lambda: self.a.core.state == "RUNNING")
        assert self.call(self.a, "queue.create_tube", "jobs", "fifo").ok
        self.until(self.in_step)
        return self

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + int(seconds * SECOND))

    def until(self, reached: Callable[[], Any], seconds: float = 15.0) -> None:
        assert self.world.run_while(lambda: not reached(), seconds), self.story()

    def story(self) -> str:
        states = ", ".join(
            f"{n.name} {n.core.state} lsn {n.engine.lsn} {n.role.fiber.ro_reason}"
            if n.alive
            else ""
            for n in self.machines.values()
        )
        return "\n".join([*self.world.lines, states])

    def in_step(self) -> bool:
        return (
            self.a.engine.lsn == self.b.engine.lsn
            and self.a.engine.store.lineage == self.b.engine.store.lineage
            and self.a.core.commit_lsn == self.b.core.commit_lsn == self.a.engine.lsn
        )

    def serving(self) -> list[str]:
        nodes = self.machines.values()
        return [node.name for node in nodes if node.alive and node.core.state == "RUNNING"]

    def cut(self, source: str = "", target: str = "") -> None:
        """One direction of the link between the nodes, or both."""
        for way in [(source, target)] if source else [("a", "b"), ("b", "a")]:
            self.network.set_cut(*way, True)

    def request(self, node: SimNode, read_only: bool, force: bool = False) -> list[Settled | None]:
        """An operator's command; its outcome is put into the list it gives."""
        found: list[Settled | None] = []
        node.request(read_only, force=force, done=found.append)
        return found

    def promote(self, node: SimNode, force: bool = False, seconds: float = 15.0) -> Settled:
        found = self.request(node, False, force)
        self.until(lambda: found, seconds)
        assert found[0] is not None
        return found[0]

    def call(self, node: SimNode, name: str, *args: Any) -> Any:
        """One call of a client that reaches both nodes; the outcome, unknown after 3 s."""
        client = Client(self.world, self.network, self.machines, "c")
        found: list[Any] = []

        def script() -> Script:
            yield Connect(node.name)
            found.append((yield Call(name, args)))

        client.run(script())
        self.until(lambda: found, 10)
        client.retire()
        return found[0]

    def put(self, node: SimNode, count: int) -> int:
        """How many of so many puts were acknowledged."""
        outcomes = [self.call(node, "queue.tube.jobs:put", n) for n in range(count)]
        return sum(one.ok is not None for one in outcomes)

    def tasks(self, node: SimNode) -> int:
        return len(node.engine.tubes["jobs"].space.rows)


__all__ = ["MS", "SECOND", "Two"]
