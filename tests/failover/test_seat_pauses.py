"""Who stood still, and who was told to wait, takes nobody's seat: real nodes, virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq_server.node.cluster.failover import report
from tandemq_server.statemachine.seat import Seat, Stand
from tests.failover.sim_seat import Seated

pytestmark = pytest.mark.sim
#: A partner that is slow to be missed: the master does not go alone meanwhile.
PATIENT = {"ack": "pair", "solo_after": 60.0}


def seat_of(two: Seated) -> Seat:
    assert two.arbiter.reading.seat is not None
    return two.arbiter.reading.seat


@pytest.mark.parametrize("broken", [False, True], ids=["links stand", "links are gone"])
def test_two_that_slept_are_no_evidence_about_each_other(broken: bool) -> None:
    """The partner wakes first: all it knows of the master is older than its own sleep."""
    for seed in range(3):
        two = Seated(seed, replication=PATIENT).start()
        assert two.put(two.a, 3) == 3
        before = seat_of(two)
        two.a.pause()
        two.b.pause()
        if broken:
            for stream in [s for s in two.network.streams if set(s.places) == {"a", "b"}]:
                stream.reset()
        two.run(6)
        two.b.resume()
        two.run(1)
        two.a.resume()
        two.run(5)
        assert two.serving() == ["a"], two.story()
        assert seat_of(two).no == before.no
        assert two.put(two.a, 3) == 3


def test_what_the_arbiter_said_before_a_pause_is_forgotten() -> None:
    """The master was away from the arbiter when it was last asked; that was a minute ago."""
    two = Seated(7, replication=PATIENT).start()
    before = seat_of(two)
    keeper = two.keeper(two.b)
    two.cut_off(two.a)
    two.until(lambda: "a" not in keeper.watch.alive)
    two.b.pause()
    two.cut_off(two.a, False)
    two.run(20)
    two.cut_off(two.b)
    two.cut("a", "b")
    two.b.resume()
    two.run(1)
    assert keeper.watch.alive_us is None
    two.run(10)
    assert seat_of(two).no == before.no, two.story()


def test_an_operators_pause_holds_until_it_is_lifted() -> None:
    two = Seated(8).start()
    two.b.deliver(lambda: report.pause(two.keeper(two.b), "the weekly test"))
    two.a.kill()
    two.run(20)
    assert two.serving() == []
    assert "paused on b: the weekly test" in report.outlook(two.keeper(two.b))
    two.b.deliver(lambda: report.resume(two.keeper(two.b)))
    two.until(lambda: two.led_by("b"), 5)


def test_a_watch_that_tells_what_was_is_no_news() -> None:
    """Who is alone by the newest seat does not wait again for a partner of an older one."""
    two = Seated(9).start()
    older = two.arbiter.reading
    assert seat_of(two).partner == "b"
    two.b.kill()
    assert two.put(two.a, 2) == 2
    keeper = two.keeper(two.a)
    assert keeper.view.stand is Stand.ALONE
    two.a.deliver(lambda: keeper.watched(older))
    assert keeper.view.stand is Stand.ALONE
    assert two.put(two.a, 2) == 2


def test_an_answer_from_before_the_last_word_is_no_evidence() -> None:
    """The arbiter did not hear the master when it was asked; the master was heard since."""
    two = Seated(10).start()
    watch = two.keeper(two.b).watch
    two.arbiter.down = True
    two.run(2)
    watch.alive, watch.alive_us = frozenset({"b"}), two.b.peering.mono()
    assert watch.seen("a", two.b.peering.mono()).key_gone
    two.run(1)
    assert not watch.seen("a", two.b.peering.mono()).key_gone


# -- ack: local ------------------------------------------------------------------------------------

LOCAL: dict[str, Any] = {
    "replication": {"ack": "local", "solo_after": 60.0},
    "failover": {"max_loss_records": 20},
}


def test_a_lease_is_over_before_the_partner_may_lead() -> None:
    """A master that reaches nobody acknowledges nothing from then on, by its own clock."""
    two = Seated(11, **LOCAL).start()
    two.cut()
    two.cut_off(two.a)
    assert two.put(two.a, 1) == 1
    two.until(lambda: two.arbiter.alive["a"] <= two.world.now, 5)
    assert two.serving() == ["a"]
    assert two.put(two.a, 1) == 0


def test_refused_dials_alone_move_no_lead_whose_lease_may_run() -> None:
    two = Seated(12, **LOCAL).start()
    until_us = two.arbiter.alive["a"]
    two.a.kill()
    two.until(lambda: two.led_by("b"))
    assert two.world.now >= until_us


def test_who_said_that_it_ends_and_came_back_has_not_ended() -> None:
    two = Seated(13, replication=PATIENT).start()
    two.b.deliver(lambda: report.pause(two.keeper(two.b), "a restart of a"))
    two.a.end()
    two.run(2)
    two.a.start()
    two.until(two.paired)
    two.b.deliver(lambda: report.resume(two.keeper(two.b)))
    before = seat_of(two)
    two.cut()
    two.run(10)
    assert seat_of(two).no == before.no
    assert two.serving() == ["a"]
