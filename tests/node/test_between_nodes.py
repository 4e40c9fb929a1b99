"""What joins a node to its peers passes on exactly what was said, and no more counts than that."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.model.record import Span
from tandemq.model.terms import Term
from tandemq_server.node.cluster.asking import TAKE_BACK_US, Asking
from tandemq_server.node.cluster.follow import UpstreamLink
from tandemq_server.node.cluster.replica import Replica
from tandemq_server.node.cluster.role import RoleKeeper
from tandemq_server.node.cluster.source import Source
from tandemq_server.replication.commit import PAIR, CommitPoint
from tandemq_server.replication.decisions import Append, Idle, InstallSnapshot, Rewind, SeenTerm
from tandemq_server.replication.followed import FollowedLog
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.messages import Ack, Handoff
from tandemq_server.statemachine import effects as fx
from tandemq_server.statemachine.roles import Role

OLD, NEW, ONE, TWO = (letter * 16 for letter in (b"o", b"n", b"1", b"2"))


def bare(kind: type, **fields: Any) -> Any:
    """An object of that class with nothing but these fields."""
    made = object.__new__(kind)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def source(**fields: Any) -> Any:
    gate = CommitPoint(PAIR, None)
    gate.open_term(NEW, False, 0)
    gate.link_up(ONE)
    gate.own(5, 0)
    peering = SimpleNamespace(mono=lambda: 0, peers={}, feeds=[], log=SimpleNamespace(first_lsn=3))
    wal = SimpleNamespace(gate=gate, advance=lambda: None)
    return bare(Source, **({"passed": {}, "wal": wal, "peering": peering} | fields))


def test_a_confirmation_counts_for_the_term_it_is_of() -> None:
    upstream = source()
    upstream.peering.peers = {"peer": SimpleNamespace(node_id=ONE)}
    upstream.confirmed(ONE, Ack(OLD, 5, 5, 0))
    assert upstream.wal.gate.commit_lsn == 0
    upstream.confirmed(ONE, Ack(NEW, 4, 5, 0))
    assert upstream.wal.gate.commit_lsn == 4


def test_only_a_peer_s_confirmation_counts() -> None:
    upstream = source()
    upstream.peering.peers = {"peer": SimpleNamespace(node_id=TWO)}
    upstream.confirmed(ONE, Ack(NEW, 4, 5, 0))
    assert upstream.wal.gate.commit_lsn == 0
    # As long as the peer was not reached nobody knows who it is.
    upstream = source()
    upstream.peering.peers = {"peer": SimpleNamespace(node_id=b"")}
    upstream.confirmed(ONE, Ack(NEW, 4, 5, 0))
    assert upstream.wal.gate.commit_lsn == 4


def test_the_log_is_kept_for_the_slowest_and_for_who_was_not_heard_of() -> None:
    upstream = source(passed={ONE: 10, TWO: 6})
    upstream.peering.peers = {name: SimpleNamespace(node_id=name) for name in (ONE, TWO)}
    assert upstream.retained_lsn() == 7
    upstream.peering.feeds = [SimpleNamespace(relay=SimpleNamespace(acked_lsn=4))]
    assert upstream.retained_lsn() == 5
    upstream.passed = {ONE: 10}
    assert upstream.retained_lsn() == 3


def test_a_replica_confirms_as_far_as_it_synced() -> None:
    log = FollowedLog(Lineage([(1, OLD, None, 1, "u", False)]), 10, 3)
    storage = SimpleNamespace(missing_lsn=0)
    peering = SimpleNamespace(peers={})
    replica = bare(Replica, log=log, peering=peering, storage=storage, _busy=None)
    replica.durable(7)
    assert log.durable_lsn == 7


def keeper(commit_lsn: int, **fields: Any) -> Any:
    fed: list[Any] = []
    wal = SimpleNamespace(commit_lsn=commit_lsn, written_lsn=10, abandon=lambda: fed.append("out"))
    core = SimpleNamespace(engine=SimpleNamespace(lsn=10), connections={})
    made = bare(RoleKeeper, wal=wal, core=core, flush=lambda: fed.append("flush"), **fields)
    made.feed, made.fed = fed.append, fed
    return made


def test_a_step_waits_until_the_very_record_is_committed() -> None:
    role = keeper(9, _awaited=None)
    role._await(4)
    role.committed(9)
    assert role.fed == ["flush"]
    role.committed(10)
    assert role.fed == ["flush", fx.Done(4, 10)]
    role = keeper(10, _awaited=None)
    role._await(4)
    assert role.fed == ["flush", fx.Done(4, 10)]


@pytest.mark.parametrize("step", [fx.AwaitCommit(4), fx.Drain(4)], ids=lambda s: type(s).__name__)
def test_a_lead_begins_and_ends_with_everything_committed(step: fx.EffectStep) -> None:
    role = keeper(9, _awaited=None, _inbox=deque())
    role._do(step)
    assert (role.fed, list(role._inbox)) == (["flush"], []), "answered before it is committed"
    role.committed(10)
    assert role.fed == ["flush", fx.Done(4, 10)]


def test_what_an_old_term_began_is_written_before_the_new_one_opens() -> None:
    role = keeper(9, storage=SimpleNamespace(open_term=lambda _term: role.fed.append("open")))
    role._begin_term(Term(2, NEW, OLD, 5, "a", False))
    assert role.fed == ["flush", "open"]
    assert (role.core.term, role.core.term_id) == (2, NEW)


def test_abandoned_calls_are_never_answered() -> None:
    role = keeper(9)
    role._abandon()
    assert role.fed == ["flush", "out"]


def link(probe: bool) -> tuple[Any, list[str]]:
    called: list[str] = []
    replica = bare(Replica)
    replica.append = lambda _link, _decision: called.append("append")
    replica.carry_out = lambda _link, decision: called.append(type(decision).__name__)
    made = bare(UpstreamLink, probe=probe, peering=SimpleNamespace(replica=replica), ended=False)
    made.problem = "?"
    return made, called


@pytest.mark.parametrize("probe", [False, True])
def test_who_leads_takes_nothing_from_others_but_word_of_terms(probe: bool) -> None:
    follow, called = link(probe)
    lineage = Lineage([(1, OLD, None, 1, "u", False)])
    assert lineage.last is not None
    decisions = [
        Append(b"", Span(1, 1), 1, [], lineage.last, False),
        Rewind(1, 2, 0, "told to", lineage),
        SeenTerm(2, NEW, True),
        Idle("nothing to give"),
    ]
    follow._decided(decisions)
    assert called == (["SeenTerm"] if probe else ["append", "Rewind", "SeenTerm"])


def test_who_leads_lets_nobody_feed_it() -> None:
    """Whoever would feed it does not know its term yet, or is ahead: it connects again."""
    for probe, feeding in ((True, True), (True, False), (False, True)):
        follow, _ = link(probe)
        ended: list[str] = []
        peering = follow.peering
        peering.mono = lambda: 0
        peering.clock = SimpleNamespace(own=lambda: 0)
        peering.peer_changed = lambda: None
        peering.settings = SimpleNamespace(name="a")
        follow.applier = SimpleNamespace(
            upstream=object(), feeding=feeding, upstream_last=5, receive=lambda *_given: []
        )
        follow.end = lambda _code, reason, ended=ended: ended.append(reason)
        follow.take(Handoff(3, 5))
        assert bool(ended) == (probe and feeding)


@pytest.mark.parametrize(
    ("probe", "over", "counts"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_what_a_peer_says_is_committed_counts_only_for_who_follows_it(
    probe: bool, over: bool, counts: bool
) -> None:
    follow, _ = link(probe)
    told: list[int] = []
    follow.ended = over
    follow.peering.replica.settle = lambda _link: None
    follow.peering.wal = SimpleNamespace(committed=told.append)
    follow.applier = SimpleNamespace(log=SimpleNamespace(commit_lsn=7), ack=lambda: None)
    follow.taken()
    assert told == ([7] if counts else [])


@pytest.mark.parametrize("cut", ["rewind", "install"])
def test_a_log_is_cut_only_when_nothing_else_touches_it(cut: str) -> None:
    """No snapshot is under way, no sync runs; after it nothing counts that is gone."""
    done: list[str] = []
    engine = SimpleNamespace(lsn=9, store=SimpleNamespace(lineage=[]), tubes={})
    core = SimpleNamespace(engine=engine, commit_lsn=9, forget_tables=lambda: done.append("tables"))

    def shorten(*_given: object) -> None:
        done.append(cut)
        engine.lsn = 5

    peering = SimpleNamespace(
        cluster_id=ONE,
        node_id=TWO,
        clock=SimpleNamespace(now=lambda: 0),
        log=object(),
        links=list,
        restart_links=lambda _why: None,
    )
    storage = SimpleNamespace(
        rewind=shorten, install=shorten, incoming_problem=lambda _lsn: None, missing_lsn=0
    )
    wal = SimpleNamespace(
        pause=lambda: done.append("no sync"),
        replaced=lambda _log, lsn: done.append(f"durable to {lsn}"),
    )
    replica = bare(
        Replica, core=core, wal=wal, storage=storage, peering=peering, rewinds=0, alarms=0
    )
    replica.before_reload = lambda: done.append("no snapshot")
    replica.say = lambda _text: None
    replica.log = FollowedLog(Lineage([]), 9, 9)
    upstream = SimpleNamespace(name="b", applier=SimpleNamespace(installed=lambda: None))
    if cut == "rewind":
        replica._rewind(upstream, Rewind(5, 4, 0, "told to", Lineage([])))
    else:
        replica._install(upstream, InstallSnapshot("5.snap", 5))
    assert sorted(done[:2]) == ["no snapshot", "no sync"]
    assert done[2:] == [cut, "durable to 5", "tables"]
    assert core.commit_lsn == 5


def test_the_lead_is_taken_back_from_nobody_who_is_about_to_have_it() -> None:
    requested: list[bool] = []
    beat = SimpleNamespace(writable=False, wants=2)
    peering = SimpleNamespace(
        role=SimpleNamespace(role=Role.WAITING, request=requested.append),
        links=lambda: [SimpleNamespace(beat=beat, ended=False)],
        say=lambda _text: None,
    )
    asking = bare(Asking, peering=peering, lent_us=0)
    for moment in range(0, 5 * TAKE_BACK_US, TAKE_BACK_US // 2):
        asking.tick(moment)
    assert requested == []
    beat.wants = 0
    asking.tick(moment + TAKE_BACK_US)
    assert requested == []
    asking.tick(moment + TAKE_BACK_US + 1)
    assert requested == [False]
