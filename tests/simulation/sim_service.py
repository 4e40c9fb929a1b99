"""When a node served, and of which records its answers told: what no client can see by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgpack

from tests.simulation.sim_world import MS

if TYPE_CHECKING:
    from tandemq.model.terms import Term
    from tandemq_server.node.core.turn import Turn
    from tests.simulation.sim_world import World

#: A moment that does not come.
NEVER = 1 << 62
#: A process that stood still for longer gives that time back (node.cluster.pauses).
PAUSE_US = 400 * MS
#: No answer's header is longer.
_HEADER = 40

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Told:
    """What an answer told of: the log of this term, up to an LSN; `first`: of its turn."""

    term: bytes
    first: int
    last: int

    def stands(self, lineage: Sequence[Term]) -> bool:
        """Whether what it told of is in the log with these terms."""
        for place, term in enumerate(lineage):
            if term.id == self.term:
                return place + 1 == len(lineage) or self.last < lineage[place + 1].start_lsn
        return not any(self.term)


@dataclass(slots=True)
class Service:
    """Of one machine, over all its processes."""

    world: World
    #: From when to when it led, and its process stood still.
    leads: list[Span] = field(default_factory=list)
    pauses: list[Span] = field(default_factory=list)
    #: By client and number of its call.
    answers: dict[tuple[str, int], Told] = field(default_factory=dict)

    def leading(self, leads: bool) -> None:
        self._note(self.leads, leads)

    def pausing(self, pauses: bool) -> None:
        self._note(self.pauses, pauses)

    def _note(self, spans: list[Span], begins: bool) -> None:
        under_way = bool(spans) and spans[-1][1] == NEVER
        if begins and not under_way:
            spans.append((self.world.now, NEVER))
        elif under_way and not begins:
            spans[-1] = (spans[-1][0], self.world.now)

    def ended(self) -> None:
        """The process is gone."""
        self.leading(False)
        self.pausing(False)

    def answered(self, turn: Turn, term: bytes, lsn: int) -> None:
        told = Told(term, turn.first_lsn or lsn, lsn)
        if turn.before:
            told = Told(term, turn.before[0][1], lsn)
        for connection, data in turn.replies:
            at = 0
            while at + 5 < len(data) and data[at] == 0xCE:
                unpacker = msgpack.Unpacker(strict_map_key=False)
                unpacker.feed(data[at + 5 : at + 5 + _HEADER])
                self.answers[connection.peer, unpacker.unpack().get(1, 0)] = told
                at += 5 + int.from_bytes(data[at + 1 : at + 5], "big")

    def stops_after(self, moment: int) -> int:
        """When it stopped to lead for the first time since then."""
        return min((end for _, end in self.leads if end >= moment), default=NEVER)


def kept_until(services: Iterable[Service], since: int, kept_us: int) -> int:
    """Since then somebody has served for so long: not counted are pauses that are given back."""
    for begin, end in _served(services):
        begin = max(begin, since)
        if end > begin:
            if end - begin >= kept_us:
                return begin + kept_us
            kept_us -= end - begin
    return NEVER


def _served(services: Iterable[Service]) -> list[Span]:
    """Times in which somebody served, in order, none of them over another."""
    spans: list[Span] = []
    for service in services:
        long = [one for one in service.pauses if one[1] - one[0] > PAUSE_US]
        for begin, end in service.leads:
            for pause, resumed in long:
                if begin < pause < end:
                    spans.append((begin, pause))
                begin = max(begin, min(resumed, end)) if pause < end else begin
            spans.append((begin, end))
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
