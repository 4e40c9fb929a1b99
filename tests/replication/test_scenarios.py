"""Scripted stories of forks: each is a bug somebody shipped, and what must happen here instead."""

from __future__ import annotations

from random import Random

import pytest

from tandemq_server.replication.messages import (
    CONFLICT,
    IDLE,
    LOST_ACKNOWLEDGED,
    NEWER_TERM,
    REWIND,
)
from tandemq_server.replication.relay import Mode
from tandemq_server.replication.standing import Outcome, contest, standing_of
from tests.replication.replication_twins import Link, Node, check_prefix, same, settle


@pytest.fixture
def rng() -> Random:
    return Random(1)


def started(rng: Random) -> tuple[Node, Node]:
    """A leads in term 1 with ten records, B holds them all."""
    a, b = Node("a"), Node("b")
    a.promote()
    a.write(4)
    a.write(5)
    a.sync()
    settle(a, b, rng)
    return a, b


def test_a_replica_becomes_an_equal_copy(rng: Random) -> None:
    a, b = started(rng)
    assert same(a, b)
    assert b.log.durable_lsn == 10


def test_a_planned_flip_cuts_nothing(rng: Random) -> None:
    a, b = started(rng)
    a.writable = False
    b.promote()
    b.write(3)
    settle(b, a, rng)
    assert same(a, b)
    assert not a.rescued


def test_the_old_master_returns_with_an_extra_suffix(rng: Random) -> None:
    """F52: forced promotion; what only the old master had is rescued, not lost, and counted."""
    a, b = started(rng)
    a.write(3)
    a.sync()
    a.log.acked_mark = 12
    b.promote(solo=True)
    b.write(2)
    a.writable = False
    settle(b, a, rng)
    assert same(a, b)
    assert [lsn for lsn, _, _ in a.rescued] == [11, 12, 13]


def test_two_timelines_of_one_number(rng: Random) -> None:
    """F53, the PostgreSQL story: both replicas of a dead master open "term 2"."""
    a, b = started(rng)
    c = Node("c")
    settle(a, c, rng)
    b.promote(salt=1)
    c.promote(salt=2)
    b.write(2)
    c.write(4)
    assert b.lineage.number == c.lineage.number == 2
    assert b.lineage.common_point(c.lineage, b.last_lsn, c.last_lsn) == 10
    # Clients of both were answered: neither may be cut by itself.
    b.log.commit_lsn, c.log.commit_lsn = b.last_lsn, c.last_lsn
    settle(b, c, rng)
    assert [code for code, _ in c.refusals] == [CONFLICT]
    assert "an operator must promote one of them" in c.refusals[0][1]
    assert not c.rescued, "a conflict cuts nothing by itself"
    # The operator lets C stand: its next term wins, B's whole leadership goes to the rescue.
    c.promote(solo=True)
    b.writable = False
    settle(c, b, rng)
    assert same(b, c)
    assert [lsn for lsn, _, _ in b.rescued] == [11, 12, 13]


def test_of_two_that_acknowledged_nothing_both_sides_choose_the_same(rng: Random) -> None:
    a, b = started(rng)
    a.promote(salt=1)
    b.promote(salt=2)
    ours, theirs = (standing_of(node.lineage.terms, 10) for node in (a, b))
    assert {contest(ours, theirs), contest(theirs, ours)} == {Outcome.ABOVE, Outcome.BELOW}


def test_a_follower_keeps_what_its_leader_confirmed(rng: Random) -> None:
    """KIP-101: a follower that restarts keeps its log beyond its own commit mark."""
    a, b = started(rng)
    assert b.log.commit_lsn < b.last_lsn
    b.restart(keep_lsn=10)
    assert b.last_lsn == 10, "nothing is cut for being above the commit mark"
    b.promote()
    a.restart(keep_lsn=10)
    settle(b, a, rng)
    assert same(a, b)
    assert not a.rescued


def test_skipped_terms_in_fast_failovers(rng: Random) -> None:
    """KIP-279: A wrote in term 2 what nobody saw; B went through terms 3 and 4 meanwhile."""
    a, b = started(rng)
    a.promote(number=2, salt=1)
    a.write(4)
    b.promote(number=3, salt=2, solo=True)
    b.write(2)
    b.promote(number=4, salt=3)
    b.write(9)
    a.writable = False
    assert a.lineage.common_point(b.lineage, a.last_lsn, b.last_lsn) == 10
    settle(b, a, rng)
    assert same(a, b)
    assert [lsn for lsn, _, _ in a.rescued] == [11, 12, 13, 14, 15]


def test_a_shorter_master_may_not_cut_what_was_acknowledged(rng: Random) -> None:
    """KIP-966, F43: the master returns from a power cut with less than its replica confirmed."""
    a, b = Node("a"), Node("b")
    a.promote()
    a.sync()
    a.write(9)
    settle(a, b, rng)
    b.log.committed(10, a.lineage.terms[-1].id, a.lineage)
    a.restart(keep_lsn=0)
    assert a.last_lsn == 1
    a.promote()
    settle(a, b, rng)
    assert [code for code, _ in b.refusals] == [LOST_ACKNOWLEDGED]
    assert "2..10" in b.refusals[0][1]
    assert b.last_lsn == 10
    assert not b.rescued


def test_a_shorter_master_is_fed_by_its_replica_before_it_leads(rng: Random) -> None:
    """The same power cut, but the node asks around first: its replica gives everything back."""
    a, b = Node("a"), Node("b")
    a.promote()
    a.sync()
    a.write(9)
    settle(a, b, rng)
    a.restart(keep_lsn=0)
    settle(b, a, rng)
    assert same(a, b)
    a.promote()
    a.write(1)
    settle(a, b, rng)
    assert same(a, b)
    assert not b.rescued


def test_an_unacknowledged_tail_is_rescued_when_the_master_came_back_shorter(rng: Random) -> None:
    a, b = Node("a"), Node("b")
    a.promote()
    a.sync()
    a.write(9)
    settle(a, b, rng)
    b.log.acked_mark = 1
    a.restart(keep_lsn=0)
    a.promote()
    settle(a, b, rng)
    assert same(a, b)
    assert len(b.rescued) == 9


def test_a_zombie_master_is_refused_and_learns_of_the_newer_term(rng: Random) -> None:
    """F54: it slept through a promotion, wakes up writable, and is asked to feed the new master."""
    a, b = started(rng)
    b.promote(solo=True)
    b.write(1)
    a.write(1)
    settle(a, b, rng)
    assert b.refusals[0][0] == NEWER_TERM
    link = Link(b, a, rng)
    while link.alive:
        link.deliver(False)
        link.deliver(True)
    assert a.seen[-1].number == 2
    assert a.seen[-1].writable


def test_a_node_that_does_not_write_asks_nobody_to_cut_anything(rng: Random) -> None:
    a, b = started(rng)
    a.write(2)
    b.promote(solo=True)
    a.writable = b.writable = False
    link = Link(b, a, rng)
    while link.welcome is None or any(link.pipes):
        link.deliver(False)
        link.deliver(True)
    assert link.welcome.answer == IDLE
    assert a.last_lsn == 12


def test_the_last_records_of_a_master_that_stopped_still_reach_its_replica(rng: Random) -> None:
    a, b = started(rng)
    a.write(50)
    a.writable = False
    settle(a, b, rng)
    assert same(a, b)


def test_a_cut_in_the_middle_of_a_frame_is_continued_with_its_rest(rng: Random) -> None:
    a, b = started(rng)
    b.lose_after(7)
    b.log.rewound(7)
    settle(a, b, rng)
    assert same(a, b)
    check_prefix(a, b)


def test_a_rewind_is_one_handshake_and_the_next_continues(rng: Random) -> None:
    a, b = started(rng)
    a.write(1)
    b.promote(solo=True)
    a.writable = False
    link = Link(b, a, rng)
    while link.alive:
        link.deliver(False)
        link.deliver(True)
    assert link.welcome is not None
    assert link.welcome.answer == REWIND
    assert a.last_lsn == 10


def test_a_snapshot_interrupted_many_times_is_resumed(rng: Random) -> None:
    """F40: the old state is kept until the last byte; every connection brings some bytes more."""
    a, b = started(rng)
    for _ in range(300):
        a.write(10)
    a.trim(3000)
    before = dict(b.history)
    for n in range(1, 40):
        link = Link(a, b, rng, window_bytes=4096, read_bytes=4096)
        for _ in range(n):
            link.work()
            link.deliver(False)
            link.deliver(True)
        link.cut()
        assert b.installs or b.history == before
    settle(a, b, rng)
    assert same(a, b)
    assert b.installs == 1


def test_a_downstream_whose_next_record_left_the_log_while_it_was_slow(rng: Random) -> None:
    a, b = started(rng)
    link = Link(a, b, rng, window_bytes=2048, read_bytes=1024)
    link.deliver(False)
    while link.relay is None:
        link.deliver(False)
    for _ in range(100):
        a.write(10)
    a.trim(900)
    for _ in range(500):
        link.work()
        link.deliver(True)
        link.deliver(False)
        b.sync()
    assert link.relay.mode is Mode.GONE
    settle(a, b, rng)
    assert same(a, b)
    assert b.installs == 1
