"""When somebody served and which answers stand: what the histories' excuses rest on."""

from __future__ import annotations

import pytest

from tandemq.model.terms import Term
from tests.simulation.sim_service import NEVER, Service, Span, Told, kept_until
from tests.simulation.sim_world import SECOND, World

ONE, TWO, OTHER = bytes([1]) * 16, bytes([2]) * 16, bytes([3]) * 16
LINEAGE = (Term(1, ONE, None, 1, "a", False), Term(2, TWO, ONE, 27, "b", True))


@pytest.mark.parametrize(
    ("told", "stands"),
    [
        (Told(ONE, 26, 26), True),
        (Told(ONE, 25, 27), False),
        (Told(TWO, 27, 99), True),
        (Told(OTHER, 20, 20), False),
        (Told(bytes(16), 0, 0), True),
    ],
)
def test_an_answer_stands_if_all_it_told_of_is_in_the_log(told: Told, stands: bool) -> None:
    assert told.stands(LINEAGE) is stands


def service(leads: list[Span], pauses: list[Span] | None = None) -> Service:
    seconds = [
        [(int(begin * SECOND), int(end * SECOND)) for begin, end in spans]
        for spans in (leads, pauses or [])
    ]
    return Service(World(1), *seconds)


@pytest.mark.parametrize(
    ("services", "until"),
    [
        ([service([(0, 9)])], 3),
        ([service([(0, 2), (5, 9)])], 6),
        ([service([(0, 2)]), service([(5, 9)])], 6),
        ([service([(0, 9)]), service([(0, 9)])], 3),
        ([service([(0, 9)], [(2, 4)])], 5),
        ([service([(0, 2.5)], [(2, 4)]), service([(4, 9)])], 5),
        ([service([(0, 9)], [(2, 2.3)])], 3),
        ([service([(0, 2)])], NEVER / SECOND),
    ],
)
def test_a_session_is_kept_for_the_time_somebody_serves(
    services: list[Service], until: float
) -> None:
    assert kept_until(services, SECOND, 2 * SECOND) == until * SECOND


def test_what_goes_on_has_no_end() -> None:
    world = World(1)
    one = Service(world)
    one.leading(True)
    world.now = 5 * SECOND
    one.pausing(True)
    assert (one.leads, one.pauses) == ([(0, NEVER)], [(5 * SECOND, NEVER)])
    assert one.stops_after(0) == NEVER
    world.now = 6 * SECOND
    one.ended()
    assert (one.leads, one.pauses) == ([(0, 6 * SECOND)], [(5 * SECOND, 6 * SECOND)])
    assert one.stops_after(0) == one.stops_after(6 * SECOND) == 6 * SECOND
    assert one.stops_after(6 * SECOND + 1) == NEVER
