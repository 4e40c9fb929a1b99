"""What happens by itself, row by row of the table in docs/failover.md: real nodes, virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq_server.node.cluster.failover import report
from tandemq_server.statemachine.seat import Seat, SeatReading, Stand
from tandemq_server.storage.memory import MemoryDisk
from tests.failover.sim_seat import PAIR, Seated
from tests.simulation.sim_node import SimNode
from tests.simulation.sim_two import SECOND

pytestmark = pytest.mark.sim


def settled(two: Seated, puts: int, on: SimNode) -> None:
    """One master, in step with its partner, everything acknowledged is there."""
    two.until(two.paired, 30)
    two.until(two.in_step, 30)
    assert two.tasks(on) == puts


def test_a_master_that_is_killed_is_replaced_within_a_second() -> None:
    for seed in range(10):
        two = Seated(seed).start()
        assert two.put(two.a, 5) == 5
        two.a.kill()
        assert two.seconds_until(lambda two=two: two.led_by("b")) < 1.0
        assert two.put(two.b, 3) == 3, "it serves alone, by the seat"
        two.a.start()
        settled(two, 8, two.b)
        assert two.a.core.state != "RUNNING"
        line = next(line for line in two.world.lines if "took the seat" in line)
        assert "a is gone: its process is gone: refused for" in line
        assert "found after" in line
        assert "serving" in line


def test_a_machine_that_is_gone_is_replaced_within_five_seconds() -> None:
    for seed in range(10):
        two = Seated(seed).start()
        assert two.put(two.a, 5) == 5
        two.cut()
        two.cut_off(two.a)
        assert two.seconds_until(lambda two=two: "b" in two.serving()) < 5.0
        two.until(lambda two=two: two.serving() == ["b"], 6)
        assert two.put(two.b, 3) == 3
        two.network.heal()
        settled(two, 8, two.b)


def test_only_the_link_is_cut() -> None:
    """a goes alone, b waits; then a dies: nobody serves, as b is not its partner."""
    two = Seated(1).start()
    assert two.put(two.a, 3) == 3
    two.cut()
    assert two.put(two.a, 3) == 3
    two.run(10)
    assert two.serving() == ["a"]
    assert two.arbiter.reading.seat is not None
    assert two.arbiter.reading.seat.partner is None
    two.a.kill()
    two.run(20)
    assert two.serving() == []
    refused = two.promote(two.b)
    assert not refused.ok
    assert "the seat is a's, and nobody is in step with it" in refused.reason
    two.a.start()
    two.until(lambda: two.led_by("a"), 5)
    two.network.heal()
    settled(two, 6, two.a)


def test_force_writes_the_seat() -> None:
    two = Seated(2).start()
    two.cut()
    assert two.put(two.a, 3) == 3
    two.a.kill()
    two.run(5)
    assert two.promote(two.b, force=True).ok
    seat = two.arbiter.reading.seat
    assert seat is not None
    assert (seat.master, seat.by) == ("b", "b: by force")
    two.network.heal()
    two.a.start()
    settled(two, 0, two.b)
    assert two.a.storage.rescue_files


def test_the_replica_is_lost_and_comes_back() -> None:
    two = Seated(3).start()
    two.b.kill()
    assert two.put(two.a, 4) == 4
    assert two.keeper(two.a).view.stand is Stand.ALONE
    two.b.start()
    settled(two, 4, two.a)
    assert two.arbiter.reading.seat is not None
    assert two.arbiter.reading.seat.partner == "b"


def test_the_arbiter_is_lost() -> None:
    """What runs goes on; nobody is promoted in order, force works, and the register hears of it."""
    two = Seated(4).start()
    two.arbiter.down = True
    two.run(10)
    assert two.put(two.a, 4) == 4
    assert "the witness: no answer; what runs goes on meanwhile" in two.story()
    two.request(two.a, True)
    two.until(lambda: not two.serving())
    refused = two.promote(two.b)
    assert not refused.ok
    assert "the witness does not answer" in refused.reason
    assert two.promote(two.b, force=True).ok
    assert two.keeper(two.b).view.stand is Stand.OWING
    assert two.put(two.b, 2) == 2
    two.arbiter.down = False
    settled(two, 6, two.b)


def test_arbiter_and_replica_are_lost() -> None:
    two = Seated(5).start()
    two.arbiter.down = True
    two.b.kill()
    assert 3.5 < two.seconds_until(lambda: not two.serving()) < 6.0
    assert two.put(two.a, 1) == 0
    assert "neither b nor the witness was heard for 4 s" in two.a.role.fiber.ro_reason
    two.arbiter.down = False
    two.until(lambda: two.led_by("a"), 8)
    assert two.put(two.a, 3) == 3
    two.b.start()
    settled(two, 3, two.a)


def test_a_master_alone_by_its_own_swap_goes_on_without_the_arbiter() -> None:
    two = Seated(6).start()
    two.b.kill()
    assert two.put(two.a, 2) == 2
    two.arbiter.down = True
    two.run(20)
    assert two.put(two.a, 2) == 2


def test_a_paused_master_finds_the_seat_anothers() -> None:
    for seed in range(10):
        two = Seated(seed).start()
        assert two.put(two.a, 3) == 3
        two.a.pause()
        assert two.seconds_until(lambda two=two: two.b.core.state == "RUNNING") < 5.5
        assert two.put(two.b, 3) == 3
        two.a.resume()
        settled(two, 6, two.b)


def test_a_paused_partner_takes_nothing_when_it_wakes() -> None:
    for seed in range(5):
        two = Seated(seed).start()
        two.b.pause()
        two.run(20)
        two.b.resume()
        two.run(5)
        assert two.serving() == ["a"], two.story()
        assert two.put(two.a, 3) == 3


def test_a_planned_switch_over_is_a_swap() -> None:
    two = Seated(7).start()
    for target, other in ((two.b, two.a), (two.a, two.b), (two.b, two.a)):
        stopped = two.request(other, True)
        two.until(lambda stopped=stopped: stopped)
        assert two.promote(target).ok
        seat = two.arbiter.reading.seat
        assert seat is not None
        assert seat.master == target.name
        assert target.core.term == seat.no
        two.until(two.paired)


def test_who_is_made_read_only_stays_so_and_is_not_replaced() -> None:
    two = Seated(8).start()
    two.request(two.a, True)
    two.run(20)
    assert two.serving() == []
    assert two.promote(two.a).ok


def test_both_restart_and_the_seat_says_who() -> None:
    for seed in range(5):
        two = Seated(seed).start()
        assert two.put(two.a, 3) == 3
        two.a.kill()
        two.until(lambda two=two: two.led_by("b"))
        two.b.kill()
        # a is configured writable, b is not.
        two.b.start()
        two.a.start()
        two.until(lambda two=two: two.led_by("b"))
        settled(two, 3, two.b)


def test_a_register_brought_back_from_an_older_copy_is_refused_by_name() -> None:
    two = Seated(9).start()
    two.arbiter.keep()
    two.a.kill()
    two.until(lambda: two.led_by("b"))
    two.a.start()
    settled(two, 0, two.b)
    two.arbiter.restore()
    two.run(5)
    assert two.serving() == ["b"], "what runs goes on"
    two.b.kill()
    two.run(10)
    assert two.serving() == []
    refused = two.promote(two.a)
    assert "it was restored from an older state; tandemq failover seed" in refused.reason
    two.b.start()
    two.run(10)
    assert two.serving() == []
    assert two.promote(two.b, force=True).ok
    settled(two, 0, two.b)


def test_a_register_brought_back_is_seeded_by_hand() -> None:
    two = Seated(10).start()
    two.arbiter.keep()
    two.a.kill()
    two.until(lambda: two.led_by("b"))
    two.a.start()
    settled(two, 0, two.b)
    assert "is not older" in two.keeper(two.b).seed("an operator")
    assert "does not serve" in two.keeper(two.a).seed("an operator")
    two.arbiter.restore()
    two.run(3)
    two.b.deliver(lambda: two.keeper(two.b).seed("an operator"))
    settled(two, 0, two.b)
    two.b.kill()
    two.until(lambda: two.led_by("a"))


def test_a_node_that_is_no_candidate_takes_nothing_by_itself() -> None:
    two = Seated(11, failover={"candidate": False}).start()
    two.a.kill()
    two.run(20)
    assert two.serving() == []
    assert two.promote(two.b).ok, "an operator may: it is the partner"


def test_so_often_an_hour_and_then_never() -> None:
    two = Seated(12).start()
    master, other = two.a, two.b
    for turn in range(3):
        master.kill()
        two.until(lambda other=other: two.led_by(other.name), 150)
        master.start()
        two.until(two.paired, 30)
        # Back by hand, so that always the same node takes over automatically.
        if other is two.b and turn < 2:
            two.request(two.b, True)
            two.run(1)
            assert two.promote(two.a).ok
            two.until(two.paired, 30)
            two.run(60)
    two.request(two.b, True)
    two.run(1)
    assert two.promote(two.a).ok
    two.until(two.paired, 30)
    two.run(61)
    two.a.kill()
    two.run(30)
    assert two.serving() == []
    assert two.keeper(two.b).paused == "3 automatic takeovers within an hour"
    two.b.deliver(lambda: report.resume(two.keeper(two.b)))
    two.until(lambda: two.led_by("b"), 5)


def test_a_master_that_ends_in_good_order_hands_over_at_once() -> None:
    two = Seated(13).start()
    two.a.end()
    assert two.seconds_until(lambda: two.led_by("b")) < 0.5


def test_two_blank_nodes_found_one_cluster_under_one_seat() -> None:
    for seed in range(5):
        two = Seated(seed)
        two.b.read_only = False
        two.b.start()
        two.a.start()
        two.until(two.paired, 20)
        assert len(two.serving()) == 1


@pytest.mark.parametrize("lost", [True, False])
def test_a_partner_whose_disk_is_lost_leads_nobody(lost: bool) -> None:
    two = Seated(14).start()
    assert two.put(two.a, 3) == 3
    two.b.kill()
    if lost:
        two.b.use_disk(MemoryDisk(where="b"))
    two.a.kill()
    two.b.start()
    two.run(15)
    assert two.serving() == ([] if lost else ["b"])
    two.a.start()
    two.until(two.paired, 20)
    assert two.tasks(two.machines[two.serving()[0]]) == 3


def test_two_empty_nodes_found_nothing_where_the_seat_shows_that_a_cluster_lived() -> None:
    """Both volumes are not mounted, say; told that the data is gone, they begin anew."""
    two = Seated(15).start()
    assert two.put(two.a, 3) == 3
    two.a.kill()
    two.b.kill()
    for node in (two.a, two.b):
        node.use_disk(MemoryDisk(where=node.name))
        node.start()
    two.run(15)
    assert two.serving() == []
    assert "was a cluster: its seat shows it" in two.a.role.fiber.ro_reason, "a reader is told"
    for node in (two.a, two.b):
        assert "this node is empty, and so are its" in two.promote(node, force=True).reason
    two.a.kill()
    two.a.options["init"] = True
    two.a.start()
    two.until(two.paired, 20)
    assert not two.a.engine.tubes


# -- ack: local ------------------------------------------------------------------------------------

LOCAL: dict[str, Any] = {
    "replication": {"ack": "local", "solo_after": 1.0},
    "failover": {"max_loss_records": 20},
}


def test_local_acknowledges_no_more_than_may_be_lost_ahead_of_its_partner() -> None:
    options = {**LOCAL, "replication": {"ack": "local", "solo_after": 60.0}}
    two = Seated(15, **options).start()
    two.until(two.in_step)
    two.cut("b", "a")
    confirmed = two.a.wal.commit_lsn
    calls = [two.call(two.a, "queue.tube.jobs:put", n) for n in range(21)]
    assert [call.ok is not None for call in calls] == [True] * 20 + [False]
    assert two.a.wal.commit_lsn == confirmed + 20
    assert two.a.engine.lsn == confirmed + 21


def test_local_loses_no_more_than_it_may() -> None:
    for seed in range(10):
        two = Seated(seed, **LOCAL).start()
        acked = two.put(two.a, 30)
        two.a.kill()
        two.until(lambda two=two: two.led_by("b"), 8)
        assert two.tasks(two.b) >= acked - 20
        two.a.start()
        two.until(two.paired, 30)
        two.until(two.in_step, 30)


# -- unknown outcomes ------------------------------------------------------------------------------


def test_answers_that_are_lost_late_or_doubled_change_nothing() -> None:
    from tests.simulation.sim_arbiter import Weather

    for seed in range(15):
        two = Seated(seed).start()
        two.arbiter.weather = Weather(lost=0.2, late=0.1, doubled=0.2)
        puts = two.put(two.a, 3)
        two.b.kill()
        two.until(lambda two=two: two.keeper(two.a).view.stand is Stand.ALONE, 60)
        puts += two.put(two.a, 3)
        two.b.start()
        two.until(two.paired, 60)
        two.a.kill()
        two.until(lambda two=two: two.led_by("b"), 60)
        puts += two.put(two.b, 3)
        two.arbiter.calm()
        two.a.start()
        two.until(two.paired, 60)
        two.until(two.in_step, 30)
        assert two.tasks(two.b) >= puts


def test_the_seat_is_the_terms_number() -> None:
    two = Seated(16).start()
    assert two.arbiter.reading == SeatReading(
        Seat(*two.arbiter.reading.seat),
        two.arbiter.reading.revision,  # type: ignore[misc]
    )
    last = two.a.engine.store.lineage[-1]
    seat = two.arbiter.reading.seat
    assert seat is not None
    assert (last.number, last.id.hex()) == (seat.no, seat.term_id)
    assert PAIR["ack"] == "pair"
    assert two.world.now > SECOND // 10
