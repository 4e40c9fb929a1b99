"""queue_state_fiber: the order of effects, and what becomes of it when anything goes wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq.model.terms import Claim
from tandemq_server.statemachine import effects, notes
from tandemq_server.statemachine.effects import (
    Done,
    Failed,
    Fault,
    Progress,
    RoleRequest,
    TermOpened,
    TermSeen,
    Tick,
)
from tandemq_server.statemachine.promotion import FENCE_US, PeerFacts
from tandemq_server.statemachine.roles import TRANSITIONS, Event, Role
from tests.statemachine.fiber_owner import ALONE, SECOND, Owner

TO_RUNNING = [
    "-> STARTUP",
    "CheckSync",
    "StopFollowing",
    "WriteTerm",
    "Promote",
    "AwaitCommit",
    "StartDrivers",
    "-> RUNNING",
    "Settled",
]
TO_WAITING = [
    "-> ENDING",
    "StopDrivers",
    "WakeWaiters",
    "Drain",
    "PublishFinalLsn",
    "-> WAITING",
    "Follow",
    "Settled",
]
BEFORE_TERM = ["StopFollowing", "WriteTerm", "Promote"]
AFTER_TERM = ["AwaitCommit", "StartDrivers"]
ENDING_STEPS = ["StopDrivers", "WakeWaiters", "Drain", "PublishFinalLsn"]
RIVAL = TermSeen(9, b"9" * 16, True, "b")
PEER = PeerFacts("b", True, last_lsn=10, term_number=1, term_id=ALONE.term_id or b"")


def running(**timeouts: int) -> Owner:
    owner = Owner(**timeouts)
    owner.go()
    assert owner.role is Role.RUNNING
    owner.done.clear()
    owner.settled.clear()
    return owner


def test_the_first_start_goes_through_startup() -> None:
    owner = Owner()
    assert (owner.role, owner.done) == (Role.INIT, ["Follow"])
    assert owner.fiber.name == "queue_state_fiber"
    owner.done.clear()
    owner.go()
    assert owner.done == TO_RUNNING
    assert owner.terms[-1] == effects.WriteTerm(2, 2, ALONE.term_id, False)
    assert owner.settled == [effects.Settled(Role.RUNNING, True, "")]
    assert (owner.fiber.ro_reason, owner.fiber.due_us) == ("", None)


def test_a_node_configured_read_only_stays_in_init() -> None:
    owner = Owner()
    owner.go(read_only=True)
    assert owner.role is Role.INIT
    assert owner.settled == [effects.Settled(Role.INIT, True, "")]
    assert owner.fiber.ro_reason == "config"


def test_ending_and_back() -> None:
    owner = running()
    owner.go(read_only=True)
    assert owner.done == TO_WAITING
    [published] = [e for e in owner.effects if isinstance(e, effects.PublishFinalLsn)]
    assert (published.lsn, published.next_term) == (77, 3)
    assert owner.fiber.state.history[-1].reason == "final LSN 77"
    owner.done.clear()
    owner.go()
    assert owner.done == TO_RUNNING
    assert [term.number for term in owner.terms] == [2, 3]


def test_every_transition_is_recorded_and_counted() -> None:
    owner = running()
    owner.now = 5 * SECOND
    owner.go(read_only=True)
    last = owner.fiber.state.history[-2]
    assert (last.origin, last.target, last.event) == (
        Role.RUNNING,
        Role.ENDING,
        Event.GO_READ_ONLY,
    )
    assert (last.duration_us, last.reason) == (5 * SECOND, "asked for")
    assert owner.fiber.state.counts[Role.RUNNING, Role.ENDING] == 1


def test_a_request_for_what_is_already_so_is_settled_at_once() -> None:
    owner = running()
    owner.go()
    assert owner.done == ["Settled"]
    assert owner.settled[-1].ok


# -- interrupted after each step -------------------------------------------------------------------


@pytest.mark.parametrize("step", BEFORE_TERM)
def test_a_step_that_fails_before_the_term_leaves_the_node_as_it_was(step: str) -> None:
    owner = Owner()
    owner.done.clear()
    owner.fail = [step]
    owner.go()
    assert owner.role is Role.WAITING
    assert owner.done[-3:] == ["-> WAITING", "Settled", "Follow"]
    assert owner.settled == [effects.Settled(Role.WAITING, False, f"failed: {step}: boom")]
    assert owner.fiber.ro_reason == f"failed: {step}: boom"
    assert owner.following
    owner.fail = ()
    owner.go()
    assert owner.role is Role.RUNNING
    numbers = [term.number for term in owner.terms]
    assert len(set(numbers)) == len(numbers), "no number is used twice, even by a failed attempt"


@pytest.mark.parametrize("step", AFTER_TERM)
def test_a_step_that_fails_after_the_term_ends_the_lead_in_good_order(step: str) -> None:
    owner = Owner()
    owner.fail = [step]
    owner.done.clear()
    owner.go()
    assert owner.role is Role.WAITING
    assert [name for name in owner.done if name in ENDING_STEPS] == ENDING_STEPS
    assert owner.settled == [effects.Settled(Role.STARTUP, False, f"failed: {step}: boom")]
    assert not owner.drivers
    owner.fail = ()
    owner.go()
    assert owner.role is Role.RUNNING


@pytest.mark.parametrize("step", ENDING_STEPS)
def test_a_step_that_fails_while_ending_does_not_keep_the_others(step: str) -> None:
    owner = running()
    owner.fail = [step]
    owner.go(read_only=True)
    assert owner.role is Role.WAITING
    expected = [s for s in ENDING_STEPS if s != "PublishFinalLsn" or step != "Drain"]
    assert [name for name in owner.done if name in ENDING_STEPS] == expected
    last = owner.fiber.state.history[-1]
    assert last.event is Event.FAILED
    assert f"{step}: boom" in last.reason
    assert ("AbandonCalls" in owner.done) == (step == "Drain")
    follow = owner.effects[-2]
    assert follow == effects.Follow(rebuild=step == "Drain")
    owner.fail = ()
    owner.go()
    assert owner.role is Role.RUNNING


@pytest.mark.parametrize("step", [*BEFORE_TERM, *AFTER_TERM, *ENDING_STEPS])
def test_a_step_that_never_answers_is_given_up(step: str) -> None:
    owner = Owner(startup_timeout_us=30 * SECOND, ending_timeout_us=5 * SECOND)
    if step in ENDING_STEPS:
        owner.go()
    owner.withhold = [step]
    owner.go(read_only=step in ENDING_STEPS)
    for _ in range(40):
        owner.later(SECOND)
    assert owner.role is Role.WAITING
    assert owner.fiber.ro_reason
    before = list(owner.done)
    owner.release()
    assert owner.done == before, "an answer that comes too late changes nothing"
    owner.go()
    assert owner.role is Role.RUNNING


@pytest.mark.parametrize("step", [*BEFORE_TERM, *AFTER_TERM])
def test_a_request_withdrawn_at_any_step_of_startup(step: str) -> None:
    owner = Owner()
    owner.withhold = [step]
    owner.go()
    owner.go(read_only=True)
    owner.release()
    assert owner.role is Role.WAITING
    assert owner.settled[-1].ok
    assert owner.following
    assert not owner.drivers
    led = step not in ("StopFollowing",)
    assert (Role.ENDING in {t.target for t in owner.fiber.state.history}) == led


@pytest.mark.parametrize("step", [*AFTER_TERM])
def test_a_newer_term_at_any_step_after_the_own_fences(step: str) -> None:
    owner = Owner()
    owner.withhold = [step]
    owner.go()
    owner.send(RIVAL)
    owner.release()
    assert owner.role is Role.WAITING
    assert owner.fiber.ro_reason == "fenced: term 9 of b"
    assert "Drain" not in owner.done
    assert "AbandonCalls" in owner.done


@pytest.mark.parametrize("step", [*BEFORE_TERM, *AFTER_TERM, *ENDING_STEPS])
def test_a_fault_at_any_step(step: str) -> None:
    owner = Owner()
    if step in ENDING_STEPS:
        owner.go()
    owner.withhold = [step]
    owner.go(read_only=step in ENDING_STEPS)
    owner.send(Fault("fsync: EIO"))
    owner.release()
    owner.later(10 * SECOND)
    assert owner.role is Role.WAITING
    assert owner.fiber.ro_reason == "fault: fsync: EIO"
    owner.go()
    assert owner.role is Role.WAITING, "a node that cannot write is not tried again"
    assert owner.settled[-1] == effects.Settled(Role.WAITING, False, "fault: fsync: EIO")


# -- startup ---------------------------------------------------------------------------------------


def test_startup_waits_for_the_last_lsn_of_the_upstream() -> None:
    ahead = replace(ALONE, peers=(replace(PEER, last_lsn=15),))
    owner = Owner(ahead)
    owner.go()
    assert owner.role is Role.STARTUP
    assert owner.fiber.ro_reason == "startup: 5 records of b: it ends at LSN 15"
    owner.send(Progress(replace(ahead, last_lsn=14)))
    assert "1 records" in owner.fiber.ro_reason
    owner.send(Progress(replace(ahead, last_lsn=15)))
    assert owner.role is Role.RUNNING
    assert not owner.terms[-1].solo


def test_startup_times_out_naming_what_is_missing() -> None:
    owner = Owner(replace(ALONE, peers=(replace(PEER, last_lsn=15),)))
    owner.go()
    assert owner.fiber.due_us == 30 * SECOND
    owner.later(30 * SECOND - 1)
    assert owner.role is Role.STARTUP
    owner.later(1)
    assert owner.role is Role.WAITING
    assert owner.settled[-1].reason == "timed out: 5 records of b: it ends at LSN 15"
    assert not owner.terms
    owner.later(3600 * SECOND)
    assert owner.role is Role.WAITING, "a command that failed leaves the node read-only"
    assert "timed out" in owner.fiber.ro_reason


def test_a_configured_node_tries_again_later_and_later() -> None:
    owner = Owner(replace(ALONE, peers=(replace(PEER, last_lsn=15),)))
    owner.go(command=False)
    waits = []
    for _ in range(8):
        owner.later(30 * SECOND)
        assert owner.role is Role.WAITING
        assert owner.fiber.due_us is not None
        waits.append(owner.fiber.due_us - owner.now)
        owner.later(waits[-1])
        assert owner.role is Role.STARTUP
    assert waits == [n * SECOND for n in (1, 2, 4, 8, 16, 30, 30, 30)]
    owner.send(Progress(ALONE))
    assert owner.role is Role.RUNNING


def test_a_forced_startup_waits_for_what_can_still_come_then_goes_solo() -> None:
    owner = Owner(replace(ALONE, peers=(replace(PEER, last_lsn=15),)))
    owner.go(force=True)
    assert owner.role is Role.STARTUP
    owner.later(30 * SECOND)
    assert owner.role is Role.RUNNING
    assert owner.terms[-1].solo


def test_force_may_come_later() -> None:
    owner = Owner(replace(ALONE, peers=(replace(PEER, writable=True),)))
    owner.go()
    assert "b is writable" in owner.fiber.ro_reason
    owner.later(5 * SECOND)
    owner.go(force=True)
    assert owner.fiber.ro_reason == "startup: b is writable and asked to stop first"
    owner.later(FENCE_US - 1)
    assert owner.role is Role.STARTUP
    owner.later(1)
    assert owner.role is Role.RUNNING
    assert owner.terms[-1].solo
    assert owner.terms[-1].claim is Claim.FORCED


def test_what_peers_answered_while_another_served_is_asked_again() -> None:
    """Before, c was let serve by what b had said before b was promoted by force in a's place."""
    a, b = replace(PEER, name="a", writable=True), replace(PEER, answered=True)
    owner = Owner(replace(ALONE, peers=(a, b)))
    owner.go()
    owner.later(25 * SECOND)
    stopped = replace(a, writable=False)
    owner.facts = replace(ALONE, peers=(stopped, replace(b, answered=False)))
    owner.send(Progress(replace(ALONE, peers=(stopped, b))))
    assert owner.effects[-1] == effects.CheckSync(again=True)
    assert "no answer from b" in owner.fiber.ro_reason
    owner.send(Progress(replace(ALONE, peers=(stopped, replace(b, writable=True)))))
    assert "b is writable" in owner.fiber.ro_reason
    owner.send(Progress(replace(ALONE, peers=(stopped, b))))
    assert owner.role is Role.STARTUP, "who served meanwhile has ended: asked once more"
    owner.send(Progress(replace(ALONE, peers=(stopped, b))))
    assert owner.role is Role.RUNNING


def test_without_proof_a_command_is_refused_and_a_configured_node_waits() -> None:
    unheard = replace(ALONE, peers=(replace(PEER, reachable=False),))
    owner = Owner(unheard)
    owner.go()
    assert owner.role is Role.WAITING
    assert owner.settled[-1].reason.startswith("b cannot be reached, and nothing shows")
    owner.go(command=False)
    owner.later(29 * SECOND)
    assert owner.role is Role.STARTUP
    owner.send(Progress(replace(ALONE, peers=(PEER,))))
    assert owner.role is Role.RUNNING
    assert not owner.terms[-1].solo


def test_as_the_original_an_unreachable_upstream_is_given_twice_the_lag() -> None:
    peers = (replace(PEER, reachable=False),)
    owner = Owner(replace(ALONE, lag_us=3 * SECOND, original=True, peers=peers))
    owner.go()
    assert owner.fiber.due_us == 6 * SECOND
    owner.later(6 * SECOND - 1)
    assert owner.role is Role.STARTUP
    owner.later(1)
    assert owner.role is Role.RUNNING
    assert owner.terms[-1].solo


def test_promotion_while_joining_is_refused_at_once() -> None:
    owner = Owner(replace(ALONE, joining=True))
    owner.go(force=True)
    assert owner.role is Role.WAITING
    assert "a snapshot is not complete" in owner.settled[-1].reason


def test_without_facts_nothing_begins() -> None:
    owner = Owner(None)
    owner.go(force=True)
    assert owner.fiber.ro_reason == "startup: the peers have not been asked yet"
    owner.later(30 * SECOND)
    assert owner.role is Role.WAITING


def test_a_term_that_was_not_reported_is_not_promoted() -> None:
    owner = Owner()
    owner.withhold = ["WriteTerm"]
    owner.go()
    [(step, _)] = owner.waiting
    owner.send(Done(step.step))
    assert owner.role is Role.WAITING
    assert "term 2 was not reported as opened" in owner.fiber.ro_reason


# -- fencing ---------------------------------------------------------------------------------------


def test_a_newer_term_ends_the_lead_without_draining() -> None:
    owner = running()
    owner.send(RIVAL)
    assert owner.done == [
        "-> ENDING",
        "StopDrivers",
        "WakeWaiters",
        "AbandonCalls",
        "-> WAITING",
        "Follow",
    ]
    assert owner.fiber.ro_reason == "fenced: term 9 of b"
    assert owner.effects[-1] == effects.Follow(rebuild=True)
    owner.later(3600 * SECOND)
    assert owner.role is Role.WAITING, "only a new role request ends the hold"
    owner.go()
    assert owner.role is Role.RUNNING
    assert owner.terms[-1].number == 10


def test_a_newer_term_while_draining_stops_the_drain() -> None:
    owner = running()
    owner.withhold = ["Drain"]
    owner.go(read_only=True)
    assert owner.role is Role.ENDING
    owner.send(RIVAL)
    assert owner.role is Role.WAITING
    assert "AbandonCalls" in owner.done


def test_the_same_number_with_another_id_is_a_conflict() -> None:
    owner = running()
    owner.send(TermSeen(2, bytes(16), False))
    assert owner.role is Role.RUNNING, "its own term, seen in a mirror"
    owner.send(TermSeen(1, b"1" * 16, True))
    assert owner.role is Role.RUNNING, "an older one"
    owner.send(TermSeen(2, b"x" * 16, True, "b"))
    assert owner.fiber.ro_reason == "conflict: b opened term 2, too"


def test_a_term_of_pair_mode_is_the_nodes_own() -> None:
    owner = running()
    owner.send(TermOpened(3, b"s" * 16))
    owner.send(TermSeen(3, b"s" * 16, False))
    assert owner.role is Role.RUNNING


def test_a_configuration_does_not_wait_for_the_end_of_another_lead() -> None:
    owner = Owner(replace(ALONE, peers=(replace(PEER, writable=True),)), term_number=1)
    owner.go(command=False)
    assert owner.role is Role.WAITING
    assert owner.fiber.ro_reason == "fenced: b is writable in term 1"
    owner.facts = ALONE
    owner.later(3600 * SECOND)
    assert owner.role is Role.WAITING, "only a role request leads out"


def test_a_promotion_elsewhere_supersedes_one_that_waits() -> None:
    behind = replace(ALONE, peers=(replace(PEER, last_lsn=15, writable=True),))
    owner = Owner(behind, term_number=1)
    owner.go()
    owner.send(TermSeen(1, b"1" * 16, True, "b"))
    assert owner.role is Role.STARTUP, "the master that is to be replaced"
    owner.send(RIVAL)
    assert owner.role is Role.WAITING
    assert owner.fiber.state.history[-1].event is Event.SUPERSEDED
    assert owner.fiber.ro_reason == "fenced: b is writable in term 9"
    owner.later(3600 * SECOND)
    assert owner.role is Role.WAITING


def test_the_old_masters_last_words_do_not_fence_the_new_one() -> None:
    owner = Owner()
    owner.withhold = ["Promote"]
    owner.go()
    owner.send(TermSeen(1, b"1" * 16, True, "b"))
    owner.release()
    assert owner.role is Role.RUNNING


# -- storms and faults of our own ------------------------------------------------------------------


def test_a_storm_of_flips_coalesces() -> None:
    owner = running()
    owner.withhold = ["Drain"]
    owner.go(read_only=True)
    for _ in range(1000):
        owner.go()
        owner.go(read_only=True)
    owner.go()
    owner.release()
    assert owner.role is Role.RUNNING
    assert [term.number for term in owner.terms] == [2, 3], "one term per completed STARTUP"
    assert [s.ok for s in owner.settled] == [True]


def test_the_deadline_of_ending() -> None:
    owner = running()
    owner.withhold = ["Drain"]
    owner.go(read_only=True)
    assert owner.fiber.due_us == 5 * SECOND
    owner.later(5 * SECOND - 1)
    assert owner.role is Role.ENDING
    owner.later(1)
    assert owner.done[-4:] == ["AbandonCalls", "-> WAITING", "Follow", "Settled"]
    assert owner.fiber.state.history[-1].event is Event.OVERDUE


@pytest.mark.parametrize("role", [Role.INIT, Role.STARTUP, Role.RUNNING, Role.ENDING])
def test_a_fault_of_our_own_does_not_freeze_the_fiber(
    role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner()
    if role is Role.ENDING:
        owner.go()
    owner.withhold = {Role.STARTUP: ["AwaitCommit"], Role.ENDING: ["Drain"]}.get(role, [])
    if role is not Role.INIT:
        owner.go(read_only=role is Role.ENDING)
    assert owner.role is role
    monkeypatch.setattr(owner.fiber.notes, "take", _broken)
    owner.send(Tick())
    assert owner.fiber.restarts
    monkeypatch.undo()
    owner.withhold = ()
    owner.later(10 * SECOND)
    owner.go(read_only=True)
    owner.later(10 * SECOND)
    assert owner.role in (Role.WAITING, Role.INIT)
    owner.go()
    assert owner.role is Role.RUNNING


def test_a_fault_while_advising_leaves_startup(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner()
    monkeypatch.setattr(notes, "advise", _broken)
    owner.go()
    assert owner.role is Role.WAITING
    assert owner.fiber.ro_reason == "failed: ZeroDivisionError: ours"
    monkeypatch.undo()
    owner.go()
    assert owner.role is Role.RUNNING


def _broken(*_: Any) -> Any:
    raise ZeroDivisionError("ours")


STEPS = st.sampled_from([*BEFORE_TERM, *AFTER_TERM, *ENDING_STEPS])
EVENTS = st.lists(
    st.one_of(
        st.builds(RoleRequest, st.booleans(), st.booleans(), st.booleans()),
        st.builds(TermSeen, st.integers(0, 9), st.binary(min_size=16, max_size=16), st.booleans()),
        st.builds(Failed, st.integers(1, 30), st.just("late")),
        st.builds(Done, st.integers(1, 30), st.integers(0, 99)),
        st.just(Progress(ALONE)),
        st.just(Progress(replace(ALONE, peers=(replace(PEER, writable=True),)))),
        st.integers(0, 40 * SECOND),
        st.tuples(st.booleans(), st.lists(STEPS, max_size=2)),
    ),
    max_size=40,
)


@given(EVENTS)
def test_whatever_happens_the_way_is_legal_and_leads_out(events: list[Any]) -> None:
    owner = Owner()
    for event in events:
        if isinstance(event, int):
            owner.later(event)
        elif isinstance(event, tuple):
            owner.fail, owner.withhold = (event[1], ()) if event[0] else ((), event[1])
        else:
            owner.send(event)
        assert not (owner.drivers and owner.following), "a node that serves follows nobody"
        assert owner.role is Role.RUNNING or owner.fiber.ro_reason
    assert owner.fiber.restarts == 0
    numbers = [term.number for term in owner.terms]
    assert numbers == sorted(set(numbers))
    history = owner.fiber.state.history
    for made in history:
        assert TRANSITIONS[made.origin][made.event] is made.target
    assert all(one.target is two.origin for one, two in pairwise(history))
    # Whatever it was: once steps work again, an operator gets the node to serve and to stop.
    owner.fail = owner.withhold = ()
    for _ in range(3):
        owner.later(40 * SECOND)
    owner.facts = ALONE
    owner.go(read_only=True)
    owner.later(40 * SECOND)
    assert owner.role in (Role.INIT, Role.WAITING)
    owner.go(force=True)
    assert owner.role is Role.RUNNING


def test_what_was_known_before_does_not_count_for_a_promotion() -> None:
    owner = Owner()
    owner.go()
    owner.go(read_only=True)
    assert owner.role is Role.WAITING
    owner.facts = None
    owner.go()
    assert owner.role is Role.STARTUP
    assert owner.fiber.ro_reason == "startup: the peers have not been asked yet"


def test_only_the_answer_to_its_own_step_counts() -> None:
    owner = Owner()
    owner.withhold = ["AwaitCommit"]
    owner.go()
    [(step, _)] = owner.waiting
    owner.send(Done(step.step - 1))
    assert owner.role is Role.STARTUP
    owner.send(Done(step.step))
    assert owner.role is Role.RUNNING


def test_a_fault_is_not_even_tried_over() -> None:
    owner = Owner()
    owner.go()
    owner.send(Fault("fsync: EIO"))
    owner.done.clear()
    for command in (True, False):
        owner.go(command=command)
        owner.later(60 * SECOND)
    assert not [name for name in owner.done if name.startswith("->")]
