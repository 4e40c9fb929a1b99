"""Every interleaving of two nodes and a register, over the product's own table of the seat.

Crashes, restarts, requests, replies and confirmations that are late or lost. What must hold in
every state: all that was acknowledged is in the log of the seat's master; and who has read that the
seat is another's leads no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from tandemq_server.replication.commit import counts, reach
from tandemq_server.statemachine import seat as table
from tandemq_server.statemachine.seat import (
    LEADING,
    Heard,
    InStep,
    Lead,
    Lost,
    Seat,
    SeatReading,
    SeatView,
    Stand,
    Starved,
    Swap,
    Won,
)

NAMES = ("a", "b")


@dataclass(frozen=True)
class Bounds:
    """Records written, terms opened, swaps carried out, messages under way at one time."""

    records: int = 3
    terms: int = 3
    revisions: int = 3
    messages: int = 2


class Node(NamedTuple):
    """led: the term it leads, 0 for none; alone: its gate lets replies go without another.

    confirmed: how far the other has confirmed in this term; log: of (term, record), durable;
    term: the highest it has led or followed.
    """

    up: bool
    view: SeatView
    led: int
    alone: bool
    confirms: bool
    confirmed: int
    log: tuple[tuple[int, int], ...]
    term: int


class State(NamedTuple):
    reading: SeatReading
    nodes: tuple[Node, ...]
    net: frozenset[tuple[Any, ...]]
    acked: frozenset[tuple[int, int]]
    written: int


Step = tuple[str, State]


def start() -> State:
    """a leads, b is its partner."""
    seat = Seat(1, "1a", "a", "b", 0, "")
    reading = SeatReading(seat, 1)
    a = SeatView("a", Stand.PAIRED, reading, seat, "b")
    nodes = (
        Node(True, a, 1, False, False, 0, (), 1),
        Node(True, SeatView("b"), 0, False, True, 0, (), 1),
    )
    return State(reading, nodes, frozenset(), frozenset(), 0)


def with_node(state: State, i: int, node: Node, net: frozenset[Any] | None = None) -> State:
    view = node.view
    if view.stand is Stand.FOLLOWING and view.reading is not None and view.asked is None:
        # Whoever is to lead reads first, so that what it has read before makes no difference.
        node = node._replace(view=view._replace(reading=None))
    nodes = (node, state.nodes[1]) if i == 0 else (state.nodes[0], node)
    kept = state.net if net is None else net
    return State(state.reading, nodes, kept, state.acked, state.written)


def dead(message: tuple[Any, ...], node: Node) -> bool:
    """Nobody waits for it any more: as good as lost."""
    if message[0] == "confirm":
        return not counts(message[2], node.term)
    return message[0] == "reply" and node.view.asked != message[2].swap


class Model:
    """What may happen within the bounds, and what the table makes of it."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self._memo: dict[Any, Any] = {}

    # -- a node and its table --------------------------------------------------------------------

    def told(self, state: State, i: int, event: Any, net: frozenset[Any] | None = None) -> Any:
        """The state after the table has answered; None where there is no room for its swap."""
        key = (state.nodes[i], event)
        if key not in self._memo:
            self._memo[key] = self._answered(*key)
        node, swap = self._memo[key]
        net = state.net if net is None else net
        if swap is not None:
            bounds = self.bounds
            full = len(net) >= bounds.messages or swap.seat.no > bounds.terms
            if full or state.reading.revision >= bounds.revisions:
                return None
            net = net | {("swap", i, swap)}
        return with_node(state, i, node, net)

    def _answered(self, node: Node, event: Any) -> tuple[Node, Swap | None]:
        """What the owner of a table does with its effects."""
        view, effects = table.step(node.view, event)
        node, asked = node._replace(view=view), None
        for effect in effects:
            match effect:
                case Swap():
                    asked = effect
                case table.Confirm(yes):
                    node = node._replace(confirms=yes)
                case table.Needs(other):
                    node = node._replace(alone=other is None)
                case table.Open(seat):
                    node = node._replace(led=seat.no, term=seat.no, confirmed=0)
                case table.StepDown():
                    node = node._replace(led=0, alone=False, confirmed=0)
        return node, asked

    # -- what may happen -------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[Step]:
        for message in state.net:
            yield f"lose {message[0]}", state._replace(net=state.net - {message})
        for i, node in enumerate(state.nodes):
            if not node.up:
                yield f"restart {NAMES[i]}", with_node(state, i, self.restarted(node, i))
                continue
            yield f"crash {NAMES[i]}", with_node(state, i, self._crashed(node, i))
            yield from self._asked(state, i)
            if node.led:
                yield from self._leads(state, i)
        for message in state.net:
            yield from self._arrives(state, message)

    def _crashed(self, node: Node, i: int) -> Node:
        """The log is durable, all else is gone."""
        return Node(False, SeatView(NAMES[i]), 0, False, True, 0, node.log, node.term)

    def restarted(self, node: Node, i: int) -> Node:
        return node._replace(up=True, view=table.begun(NAMES[i]))

    def _asked(self, state: State, i: int) -> Iterator[Step]:
        node, name = state.nodes[i], NAMES[i]
        if node.view.stand in LEADING:
            events = [
                ("is starved", Starved("")),
                ("is in step with the other", InStep(NAMES[1 - i], self._behind(state, node), "")),
                ("hears", Heard(state.reading)),
            ]
            for what, event in events:
                after = self.told(state, i, event)
                if after is not None:
                    yield f"{name} {what}", after
        elif node.view.stand is Stand.FOLLOWING and not node.led:
            fresh = node._replace(view=node.view._replace(reading=state.reading))
            nodes = (fresh, state.nodes[1]) if i == 0 else (state.nodes[0], fresh)
            last = state.reading.seat.no if state.reading.seat is not None else 0
            lead = Lead(f"{max(node.term, last) + 1}{name}", node.term, "")
            after = self.told(state._replace(nodes=nodes), i, lead)
            if after is not None:
                yield f"{name} asks for the seat", after

    def _behind(self, state: State, node: Node) -> int:
        known = [at for at, one in enumerate(node.log, 1) if one in state.acked]
        return max(0, max(known, default=0) - node.confirmed)

    def _leads(self, state: State, i: int) -> Iterator[Step]:
        node, name = state.nodes[i], NAMES[i]
        if state.written < self.bounds.records:
            longer = node._replace(log=(*node.log, (node.led, state.written)))
            yield f"{name} writes", with_node(state, i, longer)._replace(written=state.written + 1)
        peer = state.nodes[1 - i]
        if peer.up and peer.confirms and self.follows(peer, node):
            fed = with_node(state, 1 - i, peer._replace(log=node.log, term=node.led))
            if len(state.net) < self.bounds.messages:
                confirmation = ("confirm", i, node.led, len(node.log))
                yield f"{name} feeds", fed._replace(net=state.net | {confirmation})
            elif fed != state:
                yield f"{name} feeds, no word back", fed
        upto = reach(len(node.log), node.confirmed, node.alone)
        acked = state.acked | frozenset(node.log[:upto])
        if acked != state.acked:
            yield f"{name} acknowledges", state._replace(acked=acked)

    def _arrives(self, state: State, message: tuple[Any, ...]) -> Iterator[Step]:
        rest, i = state.net - {message}, message[1]
        if message[0] == "confirm":
            node, (_, _, term, length) = state.nodes[i], message
            if node.up and node.led and counts(term, node.led):
                confirmed = max(node.confirmed, length)
                yield "confirmed", with_node(state, i, node._replace(confirmed=confirmed), rest)
        elif message[0] == "swap":
            swap = message[2]
            won = self.wins(swap, state.reading)
            there = SeatReading(swap.seat, state.reading.revision + 1) if won else state.reading
            reply = ("reply", i, (Won if won else Lost)(swap, there))
            after = state._replace(reading=there)
            yield "swapped" if won else "not swapped", after._replace(net=rest | {reply})
            yield f"{'' if won else 'not '}swapped, no answer", after._replace(net=rest)
        elif state.nodes[i].up and state.nodes[i].view.asked == message[2].swap:
            after = self.told(state, i, message[2], rest)
            if after is not None:
                yield "answered", after

    @staticmethod
    def follows(peer: Node, node: Node) -> bool:
        """Nobody takes records of an older term than one it knows: a second lock."""
        return peer.term <= node.led

    @staticmethod
    def wins(swap: Swap, reading: SeatReading) -> bool:
        return swap.revision == reading.revision

    def silent(self, state: State) -> Iterator[Step]:
        """The bound of an answer is over: nobody knows."""
        for i, node in enumerate(state.nodes):
            if node.up and node.view.asked is not None:
                after = self.told(state, i, table.Silent(node.view.asked))
                if after is not None:
                    yield f"{NAMES[i]} has no answer", after

    def all_steps(self, state: State) -> Iterator[Step]:
        """What is stranded is as what crashed and came back; so only that is tried."""
        for name, after in chain(self.steps(state), self.silent(state)):
            if late := [one for one in after.net if dead(one, after.nodes[one[1]])]:
                after = after._replace(net=after.net.difference(late))
            yield name, after


def wrong(state: State) -> str:
    """What is broken in a state; empty if nothing is."""
    seat = state.reading.seat
    assert seat is not None
    master = state.nodes[NAMES.index(seat.master)]
    if not state.acked <= set(master.log):
        return "something acknowledged is not in the log of the seat's master"
    for node in state.nodes:
        known = node.view.reading
        if node.led and known is not None and known.seat is not None and known.seat.no > node.led:
            return f"{node.view.name} leads term {node.led} and has read of seat {known.seat.no}"
    return ""


@dataclass(frozen=True)
class Found:
    states: int
    problem: str = ""
    trace: tuple[str, ...] = ()
    complete: bool = True


def search(model: Model, limit: int = 3_000_000, look: Callable[[State], str] = wrong) -> Found:
    """Breadth first, so that the shortest trace is found."""
    first = start()
    seen: dict[State, tuple[State, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        for name, after in model.all_steps(state):
            if after in seen:
                continue
            seen[after] = (state, name)
            if problem := look(after):
                trace: list[str] = []
                at = after
                while (came := seen[at]) is not None:
                    trace.append(came[1])
                    at = came[0]
                return Found(len(seen), problem, tuple(reversed(trace)))
            queue.append(after)
        if len(seen) > limit:
            return Found(len(seen), complete=False)
    return Found(len(seen))


def play(model: Model, first: State, *names: str) -> State:
    """The state after a script of steps, each by its name."""
    state = first
    for name in names:
        found = dict(model.all_steps(state))
        assert name in found, f"{name!r} is not among {sorted(found)}"
        state = found[name]
    return state
