"""The keys of nodes: they end in time, and the witness's own sleep ends none of them."""

from __future__ import annotations

from tandemq_server.witness.liveness import Liveness

TICK = 0.2


def awake(liveness: Liveness, start: float, end: float) -> None:
    now = start
    while now < end:
        liveness.look(now)
        now += TICK


def test_a_key_ends_when_nobody_keeps_it() -> None:
    liveness = Liveness(0.0, TICK)
    liveness.touch("jobs", "a", 0.0, 3.0)
    awake(liveness, 0.0, 2.9)
    assert liveness.living("jobs", 2.9) == {"a"}
    assert liveness.living("mail", 2.9) == frozenset()
    awake(liveness, 2.9, 3.2)
    assert liveness.living("jobs", 3.1) == frozenset()
    assert liveness.forget(3.1) == {"jobs"}
    assert liveness.forget(3.1) == frozenset()


def test_who_slept_has_heard_nobody_and_says_nothing_of_them() -> None:
    liveness = Liveness(0.0, TICK)
    liveness.touch("jobs", "a", 0.0, 3.0)
    awake(liveness, 0.0, 1.0)
    liveness.look(61.0)
    assert liveness.living("jobs", 61.0) == {"a"}
    assert 59.0 < liveness.slept_s < 61.0
    awake(liveness, 61.0, 64.0)
    assert liveness.living("jobs", 64.0) == frozenset()


def test_ticks_that_are_a_little_late_are_no_sleep() -> None:
    liveness = Liveness(0.0, TICK)
    liveness.touch("jobs", "a", 0.0, 3.0)
    now = 0.0
    while now < 3.1:
        now += TICK * 1.9
        liveness.look(now)
    assert liveness.living("jobs", now) == frozenset()
    assert liveness.slept_s == 0.0


def test_after_a_restart_who_lived_is_given_time_again() -> None:
    liveness = Liveness(100.0, TICK)
    liveness.bring_back("jobs", {"a", "b"}, 100.0, 3.0)
    assert liveness.living("jobs", 102.9) == {"a", "b"}
    liveness.touch("jobs", "a", 102.0, 3.0)
    assert liveness.living("jobs", 103.1) == {"a"}
