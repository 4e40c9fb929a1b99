"""Heartbeats, silence, pauses, lag in time, and the offset of a peer's clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tandemq_server.replication.pulse import ClockOffset, LagClock, Pulse

SECOND = 1_000_000


def test_a_heartbeat_each_second() -> None:
    pulse = Pulse(0)
    beats = [at for at in range(0, 3 * SECOND, SECOND // 4) if pulse.tick(at)]
    assert beats == [0, SECOND, 2 * SECOND]


def test_silence_of_more_than_five_seconds_is_death() -> None:
    pulse = Pulse(0)
    for at in range(0, 5 * SECOND + 1, SECOND):
        pulse.tick(at)
        assert not pulse.dead(at)
    pulse.tick(5 * SECOND + 1)
    assert pulse.dead(5 * SECOND + 1)
    pulse.heard(5 * SECOND + 1)
    assert not pulse.dead(6 * SECOND)
    assert pulse.age_us(6 * SECOND) == SECOND - 1


def test_a_pause_of_this_process_is_not_the_peers() -> None:
    pulse = Pulse(0)
    pulse.tick(SECOND)
    pulse.tick(61 * SECOND)
    assert not pulse.dead(61 * SECOND)
    for at in range(62, 67):
        pulse.tick(at * SECOND)
    assert pulse.dead(67 * SECOND)


def test_due_is_the_next_beat_or_death() -> None:
    pulse = Pulse(0)
    pulse.tick(0)
    assert pulse.due_us == SECOND
    for at in range(1, 6):
        pulse.tick(at * SECOND)
    assert pulse.due_us == 5 * SECOND + 1
    assert pulse.now_us == 5 * SECOND


def test_lag_is_the_age_of_what_is_lacking() -> None:
    lag = LagClock(grain_us=1)
    for lsn in range(1, 11):
        lag.grew(lsn, lsn * 100)
    assert lag.lag_us(0, 2000) == 1900
    assert lag.lag_us(4, 2000) == 1500
    assert lag.lag_us(10, 2000) == 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200_000)), max_size=2000),
    st.integers(1, 200_000),
)
def test_lag_is_never_too_small(steps: list[tuple[int, int]], grain: int) -> None:
    lag = LagClock(grain_us=grain)
    lsn = now = 0
    came: list[tuple[int, int]] = []
    for more, later in steps:
        lsn, now = lsn + more, now + later
        lag.grew(lsn, now)
        came += [(at, now) for at in range(lsn - more + 1, lsn + 1)]
    for follower in range(0, lsn + 1, max(1, lsn // 10)):
        truth = max((now - at for number, at in came if number > follower), default=0)
        assert lag.lag_us(follower, now) >= truth
        if follower == lsn:
            assert lag.lag_us(follower, now) == 0


def test_lag_keeps_a_bounded_number_of_points() -> None:
    lag = LagClock(grain_us=1)
    for lsn in range(1, 10_000):
        lag.grew(lsn, lsn * 1000)
    assert len(lag._samples) <= LagClock.SAMPLES_MAX
    assert lag.lag_us(0, 10_000_000) == 9_999_000


def test_the_offset_is_that_of_the_fastest_heartbeat() -> None:
    clock = ClockOffset()
    assert clock.offset_us is None
    for travel in (900, 40, 3000, 55):
        clock.heard(5_000_000, 1_000_000 + travel)
    assert clock.offset_us == 3_999_960
    assert clock.spread_us == 2960
    for _ in range(ClockOffset.SAMPLES):
        clock.heard(0, 0)
    assert (clock.offset_us, clock.spread_us) == (0, 0), "old ones are forgotten"
