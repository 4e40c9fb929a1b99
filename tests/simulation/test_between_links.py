"""What a node makes of links that end, come twice, or stand on a log that is no more."""

from __future__ import annotations

import pytest

from tandemq_server.engine import admin
from tandemq_server.node.cluster.links import Feed
from tests.simulation.sim_node import SimNode
from tests.simulation.sim_two import SECOND, Two

pytestmark = pytest.mark.sim


def test_a_replica_that_is_gone_is_missed_before_anything_waits_for_it() -> None:
    """Pair mode goes on alone, and says so, though nobody puts anything."""
    two = Two(1, replication={"ack": "pair", "solo_after": 1.0}).start()
    assert two.put(two.a, 3) == 3
    two.b.kill()
    two.run(3)
    assert two.a.wal.gate is not None
    assert two.a.wal.gate.solo
    began = two.world.now
    assert two.put(two.a, 1) == 1
    assert two.world.now - began < SECOND // 2


def test_who_comes_back_with_a_clock_behind_the_log_and_leads_does_not_stand_still() -> None:
    """It catches up from one that leads no more: there is no master whose time it could keep."""
    two = Two(2).start()
    two.a.skew_us = -400 * SECOND
    two.a.kill()
    assert two.promote(two.b, force=True).ok
    two.run(4)
    assert two.put(two.b, 3) == 3
    two.request(two.b, True)
    two.until(lambda: not two.serving())
    two.a.start()
    two.until(lambda: two.serving() == ["a"])
    assert two.a.clock.now() >= two.a.engine.now
    assert two.call(two.a, "queue.create_tube", "short", "fifottl").ok is not None
    assert two.call(two.a, "queue.tube.short:put", 1, {"ttl": 0.5}).ok is not None
    two.run(1)
    assert not two.a.engine.tubes["short"].space.rows


def feeds_of(node: SimNode, other: SimNode) -> list[Feed]:
    """Live links over which one is fed by the other."""
    return [
        feed
        for feed in node.peering.feeds
        if feed.hello is not None and feed.hello.node_id == other.storage.meta.node
    ]


def test_a_replica_that_connects_again_is_fed_over_one_link() -> None:
    """The end of its old connection never arrives; the new one takes its place."""
    two = Two(3, replication={"ack": "pair", "solo_after": 60.0}).start()
    (old,) = feeds_of(two.a, two.b)
    for stream in two.network.streams:
        if stream.places == ("b", "a"):
            # Its machine is gone: not even the end of its connections comes.
            stream._busy = True
    two.b.kill()
    two.b.start()
    two.until(two.in_step)
    (new,) = feeds_of(two.a, two.b)
    assert new is not old
    assert old.ended
    assert two.put(two.a, 3) == 3


def test_a_log_that_was_cut_is_followed_afresh() -> None:
    """Whoever lost the split asks at once from where its log ends now."""
    two = Two(4).start()
    assert two.put(two.a, 3) == 3
    two.cut()
    assert two.promote(two.b, force=True).ok
    assert two.put(two.a, 3) == 3
    assert two.put(two.b, 2) == 2
    standing = list(two.a.peering.links())
    two.network.heal()
    two.until(lambda: two.a.peering.replica.rewinds, 5)
    assert two.a.peering.replica.rewinds == 1
    cut = [link for link in standing if not link.ended]
    assert not cut, "links that stood on what was cut"
    assert all(link.problem for link in standing)
    two.until(two.in_step, 2)
    assert two.tasks(two.a) == 5


def test_a_lead_that_is_over_leaves_nothing_that_confirms() -> None:
    """Who follows has no commit point of its own: the next leadership begins one."""
    two = Two(5, replication={"ack": "pair", "solo_after": None}).start()
    led = two.a.wal.gate
    assert led is not None
    stopped = two.request(two.a, True)
    two.until(lambda: stopped)
    assert two.promote(two.b).ok
    two.until(two.in_step)
    assert two.a.wal.gate is None
    stopped = two.request(two.b, True)
    two.until(lambda: stopped)
    assert two.promote(two.a).ok
    assert two.a.wal.gate is not led
    two.until(two.in_step)
    assert two.put(two.a, 2) == 2


def test_a_node_whose_log_is_in_rescue_files_says_that_it_joins() -> None:
    """It is empty, but it is no new node: it founds nothing and leads nobody without force."""
    two = Two(6)
    two.cut()
    two.b.start()
    facts = two.b.peering.facts()
    assert (facts.blank, facts.joining) == (True, False)
    two.b.storage.rescue_files = 1
    facts = two.b.peering.facts()
    assert (facts.blank, facts.joining) == (False, True)


def test_what_the_master_said_is_acknowledged_counts_before_a_promotion() -> None:
    """Also what is not here yet: without it this node lacks something."""
    two = Two(7).start()
    log = two.b.peering.replica.log
    assert two.b.peering.facts().acked_mark == log.last_lsn
    log.acked_mark = log.last_lsn + 5
    assert two.b.peering.facts().acked_mark == log.last_lsn + 5


def test_pair_mode_that_never_goes_alone_acknowledges_nothing_alone_unforced() -> None:
    """It may lead, as its peer has ended in good order; what it writes waits for a replica."""
    two = Two(8, replication={"ack": "pair", "solo_after": None}).start()
    assert two.put(two.a, 2) == 2
    stopped = two.request(two.a, True)
    two.until(lambda: stopped)
    two.run(1)
    two.a.end()
    two.run(1)
    settled = two.promote(two.b)
    assert not settled.ok
    assert "AwaitCommit" in settled.reason
    assert two.promote(two.b, force=True).ok
    assert two.put(two.b, 1) == 1


def test_what_a_turn_did_before_its_node_went_on_alone_belongs_to_the_term_before() -> None:
    """And its replica takes it: no record stands in front of the term it is of."""
    two = Two(9, replication={"ack": "pair", "solo_after": 1.0}).start()
    before = two.a.engine.lsn

    def turn() -> None:
        admin.create_tube(two.a.engine, "late", "fifo", {})
        two.a.role.reopen(False)

    two.a.deliver(turn)
    two.until(two.in_step)
    last = two.b.engine.store.lineage[-1]
    assert last.start_lsn > before + 1
    assert "late" in two.b.engine.tubes
    two.b.kill()
    two.b.start()
    two.until(two.in_step)


def test_who_let_a_peer_lead_does_not_lead_again_without_proof() -> None:
    """It served last, and nobody was heard to serve since: but it said yes to one who asked."""
    two = Two(10).start()
    stopped = two.request(two.a, True)
    two.until(lambda: stopped)
    begin = two.b.peering.stop_following

    def begin_unheard() -> None:
        two.cut()
        begin()

    two.b.peering.stop_following = begin_unheard  # type: ignore[method-assign]
    assert two.promote(two.b).ok
    two.run(5)
    settled = two.promote(two.a)
    assert not settled.ok
    assert "nothing shows that it does not serve" in settled.reason
    assert two.serving() == ["b"]


class Letters:
    """A wire whose bytes a test carries over by hand."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        """Nothing is held."""

    def take(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent


def test_a_state_that_changes_while_the_greetings_cross_is_told_with_the_first_answer() -> None:
    """Else a switch-over waits for the next heartbeat to hear that the other node serves."""
    two = Two(5).start()
    two.cut()
    two.until(lambda: not two.a.peering.links() and not two.b.peering.links())
    there, back = Letters(), Letters()
    follow = two.a.peering.connect("b:1", there)
    feed = two.b.peering.accept(back, "a")
    feed.receive(there.take())
    assert feed.hello is not None
    assert feed.hello.state == "RUNNING"
    two.a.core.set_state("ENDING")
    two.a.peering.state_changed()
    assert not there.sent, "nothing is said before the other end is known"
    follow.receive(back.take())
    feed.receive(there.take())
    assert feed.beat is not None
    assert feed.beat.state == "ENDING"
