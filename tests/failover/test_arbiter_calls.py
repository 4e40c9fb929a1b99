"""What the arbiter answers reaches the seat as what it was: won, lost, or nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq_server.arbiters.base import ArbiterRefused, SwapLost, Unreachable
from tandemq_server.node.loop import arbiter_calls
from tandemq_server.node.loop.arbiter_calls import ArbiterCalls
from tandemq_server.node.loop.clock import monotonic_us
from tandemq_server.statemachine.seat import Read, Seat, SeatReading, Swap

SEAT = Seat(3, "3a" * 16, "a", "b", 0, "")
HERE = SeatReading(SEAT, 7)
SWAP = Swap(7, SEAT._replace(partner=None))


class Scripted:
    """An arbiter that answers as it is told; an exception is raised."""

    name = "scripted"

    def __init__(self, swapped: Any, slow_seconds: float = 0.0) -> None:
        self.swapped, self.slow_seconds = swapped, slow_seconds
        self.calls: list[str] = []
        self.news: list[SeatReading] = []

    async def read(self) -> SeatReading:
        self.calls.append("read")
        await asyncio.sleep(0.001)
        return HERE

    async def swap(self, revision: int, seat: Seat) -> SeatReading:
        self.calls.append(f"swap at {revision}")
        if isinstance(self.swapped, Exception):
            raise self.swapped
        return SeatReading(seat, revision + 1)

    async def keep_alive(self, node: str) -> None:
        self.calls.append(f"{node} lives")

    async def alive(self) -> frozenset[str]:
        await asyncio.sleep(self.slow_seconds)
        return frozenset({"a"})

    async def watch(self, revision: int) -> AsyncIterator[SeatReading]:
        for reading in self.news:
            yield reading
        await asyncio.sleep(3600)

    async def close(self) -> None:
        self.calls.append("closed")


class Told:
    """A seat that writes down what it hears."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(name="a")
        self.view = SimpleNamespace(reading=HERE)
        self.ask: Callable[[Read | Swap], None] = lambda _call: None
        self.name = ""
        self.heard_of: list[tuple[Any, ...]] = []

    def heard(self, reading: SeatReading) -> None:
        self.view.reading = reading
        self.heard_of.append(("heard", reading))

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: self.heard_of.append((name, *given))

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [one for one in self.heard_of if one[0] in names]


def run(arbiter: Scripted, story: Callable[[Told], Any], known: SeatReading | None = HERE) -> Told:
    """The calls at work until `story` finds what it waits for. known: read before they began."""
    told = Told()
    told.view.reading = known

    def fault(text: str, error: BaseException | None) -> None:
        raise AssertionError(text) from error

    async def life() -> None:
        calls = ArbiterCalls(told, arbiter, lambda: None, fault)  # type: ignore[arg-type]
        calls.start()
        async with asyncio.timeout(30):
            while not story(told):
                await asyncio.sleep(0.005)
        await calls.stop()

    asyncio.run(life())
    assert arbiter.calls[-1] == "closed"
    return told


@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        (None, ("won", SWAP, SeatReading(SWAP.seat, 8))),
        (SwapLost(SeatReading(SEAT, 9)), ("lost", SWAP, SeatReading(SEAT, 9))),
        (Unreachable("scripted: no answer"), ("silent", SWAP, "scripted: no answer")),
        (ArbiterRefused("scripted: no"), ("silent", SWAP, "scripted: no")),
    ],
)
def test_each_outcome_of_a_swap(answer: Exception | None, heard: tuple[Any, ...]) -> None:
    asked: list[bool] = []

    def story(told: Told) -> bool:
        if not asked:
            asked.append(True)
            told.ask(SWAP)
        return bool(told.of("won", "lost", "silent"))

    told = run(Scripted(answer), story)
    assert told.of("won", "lost", "silent") == [heard]


def test_a_sign_of_life_counts_from_when_it_was_sent() -> None:
    """What was on the way for long is a lease that is nearly over, not a fresh one."""
    began = monotonic_us()
    told = run(Scripted(None, slow_seconds=0.3), lambda told: told.of("beaten"))
    (_, alive, asked_us) = told.of("beaten")[0]
    assert alive == {"a"}
    assert began <= asked_us < monotonic_us() - 300_000


def test_the_seat_is_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody asked: a watch may have missed that it is another's."""
    monkeypatch.setattr(arbiter_calls, "BEAT_SECONDS", 0.02)
    told = run(Scripted(None), lambda told: len(told.of("heard")) >= 3)
    assert told.of("heard")[0] == ("heard", HERE)


def test_a_node_that_has_just_started_hears_of_changes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be made the partner, and be needed, before the second's read comes round."""
    monkeypatch.setattr(arbiter_calls, "BEAT_SECONDS", 3600.0)
    arbiter = Scripted(None)
    arbiter.news = [SeatReading(SEAT._replace(partner="c"), 8)]

    told = run(arbiter, lambda told: told.of("watched"), known=None)
    assert told.of("watched") == [("watched", arbiter.news[0])]
