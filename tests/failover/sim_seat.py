"""Two nodes and an arbiter on the virtual clock."""

from __future__ import annotations

from typing import Any

from tandemq_server.node.cluster.failover.keeper import SeatKeeper
from tests.simulation.sim_arbiter import PLACE, SimArbiter, Weather
from tests.simulation.sim_node import SimNode
from tests.simulation.sim_two import Two

PAIR: dict[str, Any] = {"ack": "pair", "solo_after": 1.0}


class Seated(Two):
    """Nodes a and b, and the arbiter both can reach; a leads, b is its partner."""

    def __init__(self, seed: int, weather: Weather | None = None, **options: Any) -> None:
        super().__init__(seed, **{"replication": PAIR, **options})
        self.arbiter = SimArbiter(self.world, weather or Weather())
        for node in self.machines.values():
            node.arbiter = self.arbiter

    def start(self) -> Seated:
        super().start()
        self.until(self.paired)
        return self

    def paired(self) -> bool:
        seat = self.arbiter.reading.seat
        return seat is not None and seat.partner is not None and self.led_by(seat.master)

    def led_by(self, name: str) -> bool:
        return self.serving() == [name]

    def cut_off(self, node: SimNode, cut: bool = True) -> None:
        """Between a node and the arbiter nothing gets through."""
        for way in ((node.name, PLACE), (PLACE, node.name)):
            self.network.set_cut(*way, cut)

    @staticmethod
    def keeper(node: SimNode) -> SeatKeeper:
        assert node.peering.seat is not None
        return node.peering.seat

    def seconds_until(self, reached: Any, limit: float = 15.0) -> float:
        began = self.world.now
        self.until(reached, limit)
        return (self.world.now - began) / 1e6
