"""An arbiter on the virtual clock: one register, keys of who lives, and its weather.

Requests and answers are late, lost, doubled; a request that nobody waits for any more is carried
out all the same. The register may be brought back from an older copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tandemq_server.statemachine.seat import Read, Seat, SeatReading, Swap
from tests.simulation.sim_world import MS, SECOND, World

if TYPE_CHECKING:
    from tests.simulation.sim_node import SimNode

PLACE = "w"
TIMEOUT_US = 1 * SECOND
TTL_US = 3 * SECOND


@dataclass(frozen=True)
class Weather:
    """lost: how likely a request, or an answer, never arrives; late: comes after its bound."""

    lost: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    delay_us: tuple[int, int] = (500, 4 * MS)


CALM = Weather()


class SimArbiter:
    """down: nobody answers. swaps: (moment, seat) of every one that was carried out."""

    def __init__(self, world: World, weather: Weather = CALM) -> None:
        self.world = world
        self.weather = weather
        self.reading = SeatReading(None, 0)
        self.alive: dict[str, int] = {}
        self.down = False
        self.swaps: list[tuple[int, Seat]] = []
        self.nodes: dict[str, SimNode] = {}
        self.kept: SeatReading | None = None
        self._queues: dict[str, list[Read | Swap]] = {}
        self._busy: set[str] = set()

    def join(self, node: SimNode) -> None:
        """A process begins: its calls come here, one after the other."""
        keeper = node.peering.seat
        assert keeper is not None
        self.nodes[node.name] = node
        self._queues[node.name] = []
        self._busy.discard(node.name)
        keeper.name = "the witness"
        keeper.ask = lambda call: self._ask(node, call)
        keeper.ask(Read())
        node.soon(0, lambda: self._beat(node))

    # -- one node's calls ------------------------------------------------------------------------

    def _ask(self, node: SimNode, call: Read | Swap) -> None:
        self._queues[node.name].append(call)
        self._next(node)

    def _next(self, node: SimNode) -> None:
        queue = self._queues[node.name]
        if node.name in self._busy or not queue:
            return
        self._busy.add(node.name)
        call, over = queue.pop(0), [False]
        keeper = node.peering.seat
        assert keeper is not None

        def answer(tell: Callable[[], None]) -> None:
            if not over[0]:
                over[0] = True
                self._busy.discard(node.name)
                tell()
                self._next(node)

        def silent() -> None:
            if isinstance(call, Swap):
                keeper.silent(call, "no answer")
            else:
                keeper.read_failed("no answer")

        node.soon(TIMEOUT_US, lambda: answer(silent))
        self._travel(node, lambda: self._carry_out(node, call, answer))

    def _travel(self, node: SimNode, arrived: Callable[[], None], back: bool = False) -> None:
        """One way between a node and the arbiter; lost where the network is cut."""
        chance, weather = self.world.chance, self.weather
        way = (PLACE, node.name) if back else (node.name, PLACE)
        if way in node.network.cut or self.down or chance.random() < weather.lost:
            return
        delay = chance.randint(*weather.delay_us)
        if chance.random() < weather.late:
            delay += chance.randint(SECOND // 2, 4 * SECOND)
        copies = 2 if chance.random() < weather.doubled else 1
        for copy in range(copies):
            after = delay + copy * chance.randint(0, 2 * SECOND)
            if back:
                node.soon(after, arrived)
            else:
                self.world.after(after, arrived)

    def _carry_out(
        self, node: SimNode, call: Read | Swap, answer: Callable[[Callable[[], None]], None]
    ) -> None:
        keeper = node.peering.seat
        assert keeper is not None
        reading = self.reading
        if isinstance(call, Read):
            self._travel(node, lambda: answer(lambda: keeper.heard(reading)), back=True)
            return
        won = call.revision == reading.revision
        if won:
            self.put(SeatReading(call.seat, reading.revision + 1))
        now = self.reading

        def told() -> None:
            (keeper.won if won else keeper.lost)(call, now)

        self._travel(node, lambda: answer(told), back=True)

    def put(self, reading: SeatReading) -> None:
        self.reading = reading
        if reading.seat is not None:
            self.swaps.append((self.world.now, reading.seat))
            self.world.say(f"seat: {reading.seat} at revision {reading.revision}")
        for node in self.nodes.values():
            if node.alive and node.peering.seat is not None:
                heard = node.peering.seat.watched
                self._travel(node, lambda heard=heard: heard(reading), back=True)  # type: ignore[misc]

    # -- who lives -------------------------------------------------------------------------------

    def _beat(self, node: SimNode) -> None:
        keeper, asked_us = node.peering.seat, node.peering.mono()
        assert keeper is not None
        over = [False]

        def arrived() -> None:
            now = self.world.now
            self.alive[node.name] = now + TTL_US
            living = frozenset(name for name, end in self.alive.items() if end > now)
            self._travel(node, lambda: told(living), back=True)

        def told(living: frozenset[str]) -> None:
            if not over[0]:
                over[0] = True
                keeper.beaten(living, asked_us)

        def silent() -> None:
            if not over[0]:
                over[0] = True
                keeper.no_answer("no answer")

        self._travel(node, arrived)
        node.soon(TIMEOUT_US, silent)
        if not self._queues[node.name]:
            self._ask(node, Read())
        node.soon(SECOND, lambda: self._beat(node))

    # -- an operator's mistakes ------------------------------------------------------------------

    def keep(self) -> None:
        self.kept = self.reading

    def restore(self) -> None:
        """An older copy is brought back."""
        if self.kept is not None:
            self.put(self.kept)

    def calm(self) -> None:
        self.weather, self.down = replace(CALM), False
