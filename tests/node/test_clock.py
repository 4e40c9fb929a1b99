"""The log's clock: never backwards, never far at once, whatever the clock on the wall does."""

from __future__ import annotations

import pytest

from tandemq_server.node.loop.clock import SLEW_PPM, LogClock

SECOND = 1_000_000
HOUR = 3600 * SECOND


class Clocks:
    """What a node asks of its machine."""

    def __init__(self, wall: int) -> None:
        self.off, self.mono = wall, 0

    def wall(self) -> int:
        return self.off + self.mono

    def clock(self, at_least_us: int = 0) -> LogClock:
        return LogClock(at_least_us, self.wall, lambda: self.mono)


def test_it_goes_on_from_the_log_where_the_wall_is_behind_it() -> None:
    clock = Clocks(10 * HOUR).clock(at_least_us=12 * HOUR)
    assert clock.now() == clock.own() == 12 * HOUR
    assert Clocks(10 * HOUR).clock(at_least_us=9 * HOUR).now() == 10 * HOUR


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_corrected_wall_is_followed_slowly_and_never_backwards(jump: int) -> None:
    clocks = Clocks(10 * HOUR)
    clock = clocks.clock()
    clocks.off += jump
    before = began = clock.now()
    for _ in range(100):
        clocks.mono += SECOND
        left = clock.slew()
        assert before < clock.now()
        before = clock.now()
    pulled = clock.now() - began - 100 * SECOND
    assert abs(pulled) == 100 * SLEW_PPM
    assert left == jump - pulled


def test_a_wall_that_is_hardly_off_is_reached_and_kept() -> None:
    clocks = Clocks(10 * HOUR)
    clock = clocks.clock()
    clocks.off += 700
    for _ in range(5):
        clocks.mono += SECOND
        clock.slew()
    assert clock.now() == clocks.wall()


def test_a_moment_of_the_log_moves_it_forward_alone() -> None:
    clocks = Clocks(10 * HOUR)
    clock = clocks.clock()
    clock.at_least(9 * HOUR)
    assert clock.now() == 10 * HOUR
    clock.at_least(11 * HOUR)
    assert clock.now() == 11 * HOUR


def test_a_follower_keeps_its_masters_time() -> None:
    clocks = Clocks(10 * HOUR)
    clock = clocks.clock()
    clock.follow(5 * SECOND)
    clocks.mono += SECOND
    assert clock.now() == 10 * HOUR + 6 * SECOND
    assert clock.own() == 10 * HOUR + SECOND
