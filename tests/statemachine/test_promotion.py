"""May this node be promoted, what would be lost, who should be: facts in, words out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tandemq_server.statemachine.promotion import (
    ANSWER_US,
    FENCE_US,
    Answer,
    Facts,
    PeerFacts,
    advise,
    best_candidate,
    loss_bound,
    next_number,
)

A, B = b"a" * 16, b"b" * 16
SECOND = 1_000_000
PEER = PeerFacts("b", True, last_lsn=100, term_number=3, term_id=A)
GONE = PeerFacts("b", False, last_lsn=90, term_number=3, term_id=A, age_us=4 * SECOND)
OWN = Facts(100, 3, A, 100, lag_us=2 * SECOND, peers=(PEER,))
IN_PAIR = replace(OWN, pair=True, solo_after_us=5 * SECOND)
EMPTY = Facts(0, blank=True)
NEVER_HEARD = PeerFacts("b", False)
ORIGINAL = replace(OWN, original=True)


def with_peer(peer: PeerFacts, own: Facts = OWN) -> Facts:
    return replace(own, peers=(peer,))


@pytest.mark.parametrize(
    ("facts", "waited", "force", "answer", "solo", "missing"),
    [
        (replace(OWN, peers=()), 0, False, Answer.READY, False, ""),
        (OWN, 0, False, Answer.READY, False, ""),
        (OWN, 0, True, Answer.READY, True, ""),
        (with_peer(replace(PEER, last_lsn=107)), 0, False, Answer.WAIT, False, "7 records of b"),
        (with_peer(replace(PEER, last_lsn=107)), 0, True, Answer.WAIT, False, "7 records of b"),
        (with_peer(replace(PEER, last_lsn=50)), 0, False, Answer.READY, False, ""),
        # Behind in terms: whatever else it holds was not on the winning side.
        (
            with_peer(replace(PEER, term_number=2, last_lsn=999)),
            0,
            False,
            Answer.READY,
            False,
            "",
        ),
        (
            with_peer(replace(PEER, term_number=4, term_id=B, foreign_term=True, last_lsn=5)),
            0,
            False,
            Answer.WAIT,
            False,
            "b is in term 4, this node in 3",
        ),
        (with_peer(replace(PEER, writable=True)), 0, False, Answer.WAIT, False, "b is writable"),
        (with_peer(replace(PEER, writable=True)), 0, True, Answer.WAIT, False, "asked to stop"),
        (with_peer(replace(PEER, writable=True)), FENCE_US, True, Answer.READY, True, ""),
        # Of two that want to serve one goes first; whoever hears has answered.
        (with_peer(replace(PEER, first=True)), 9**9, False, Answer.WAIT, False, "b wants to serve"),
        (with_peer(replace(PEER, first=True)), 0, True, Answer.READY, True, ""),
        (
            with_peer(replace(PEER, first=True, foreign_term=True, term_id=B, outcome="above")),
            0,
            False,
            Answer.READY,
            False,
            "",
        ),
        (
            with_peer(replace(PEER, answered=False)),
            0,
            False,
            Answer.WAIT,
            False,
            "no answer from b",
        ),
        (
            with_peer(replace(PEER, answered=False)),
            ANSWER_US,
            False,
            Answer.UNPROVED,
            False,
            "may not hear this node",
        ),
        (
            with_peer(replace(PEER, answered=False), replace(OWN, led=True)),
            0,
            False,
            Answer.READY,
            False,
            "",
        ),
        (
            with_peer(replace(PEER, term_id=B, foreign_term=True)),
            0,
            False,
            Answer.WAIT,
            False,
            "both promoted to term 3",
        ),
        (with_peer(replace(PEER, term_id=B, foreign_term=True)), 0, True, Answer.READY, True, ""),
        (replace(OWN, acked_mark=103), 0, False, Answer.UNPROVED, False, "101..103 were ack"),
        (replace(OWN, lacks=90), 0, False, Answer.UNPROVED, False, "up to 90 were acknowledged"),
        (replace(OWN, lacks=90), 0, True, Answer.READY, True, ""),
        (replace(OWN, acked_mark=103), 0, True, Answer.READY, True, ""),
        (replace(OWN, joining=True), 0, False, Answer.NEVER, False, "snapshot is not complete"),
        (replace(OWN, joining=True), 0, True, Answer.NEVER, False, "snapshot is not complete"),
        # Nobody to ask: only with proof, however long one waits.
        (with_peer(GONE), 0, False, Answer.UNPROVED, False, "nothing shows that it does not serve"),
        (with_peer(GONE), 9**9 * SECOND, False, Answer.UNPROVED, False, "rw --force --at-lsn 100"),
        (with_peer(GONE), 0, True, Answer.READY, True, ""),
        (with_peer(GONE, replace(OWN, led=True)), 0, False, Answer.READY, False, ""),
        # An empty node joins; it founds only where it knows, or was told, that there is nothing.
        (with_peer(NEVER_HEARD, EMPTY), 0, False, Answer.NEVER, False, "started with --init"),
        (with_peer(NEVER_HEARD, EMPTY), 0, True, Answer.NEVER, False, "started with --init"),
        (with_peer(NEVER_HEARD, replace(EMPTY, founds=True)), 0, False, Answer.READY, False, ""),
        (with_peer(replace(NEVER_HEARD, reachable=True), EMPTY), 0, False, Answer.READY, False, ""),
        (with_peer(PEER, replace(EMPTY, founds=True)), 0, True, Answer.NEVER, False, "it joins"),
        # Its process ended, and did not serve when it did.
        (with_peer(replace(GONE, ended=True)), 0, False, Answer.READY, True, ""),
        (with_peer(replace(GONE, ended=True, writable=True)), 0, False, Answer.UNPROVED, False, ""),
        (with_peer(replace(GONE, ended=True, last_lsn=101)), 0, False, Answer.UNPROVED, False, ""),
        # Pair mode: it may have gone alone by now, or may yet; unless it never does.
        (with_peer(GONE, IN_PAIR), 0, False, Answer.UNPROVED, False, ""),
        (
            with_peer(GONE, replace(IN_PAIR, solo_after_us=9 * SECOND)),
            0,
            False,
            Answer.UNPROVED,
            False,
            "",
        ),
        (with_peer(GONE, replace(IN_PAIR, solo_after_us=None)), 0, False, Answer.READY, True, ""),
        (
            with_peer(GONE, replace(IN_PAIR, solo_after_us=None, solo=True)),
            0,
            False,
            Answer.UNPROVED,
            False,
            "",
        ),
        # The original's rule: twice the lag last seen, then on without proof.
        (with_peer(GONE, ORIGINAL), 0, False, Answer.WAIT, False, "b cannot be reached"),
        (with_peer(GONE, ORIGINAL), 4 * SECOND - 1, False, Answer.WAIT, False, "b cannot be"),
        (with_peer(GONE, ORIGINAL), 4 * SECOND, False, Answer.READY, True, ""),
        (
            with_peer(replace(GONE, tried=False)),
            9 * SECOND,
            False,
            Answer.WAIT,
            False,
            "to reach b",
        ),
        (with_peer(replace(GONE, tried=False)), 0, True, Answer.READY, True, ""),
    ],
)
def test_advice(
    facts: Facts, waited: int, force: bool, answer: Answer, solo: bool, missing: str
) -> None:
    advice = advise(facts, waited, force)
    assert (advice.answer, advice.solo) == (answer, solo)
    assert missing in advice.missing
    assert bool(advice.missing) == (answer is not Answer.READY)


def test_waiting_for_the_lag_says_until_when() -> None:
    assert advise(with_peer(GONE, ORIGINAL), 0, False).due_us == 4 * SECOND
    assert advise(with_peer(replace(PEER, last_lsn=107)), 0, False).due_us is None


@pytest.mark.parametrize(
    ("facts", "records", "words"),
    [
        (OWN, 0, "nothing"),
        (replace(OWN, acked_mark=104), 4, "4 acknowledged records"),
        (with_peer(replace(PEER, last_lsn=130, acked_mark=120)), 20, "20 acknowledged"),
        (with_peer(replace(PEER, last_lsn=110, acked_mark=120)), 10, "10 acknowledged"),
        (with_peer(GONE), None, "unknown: b may have acknowledged for 4.0 s"),
        (with_peer(replace(GONE, ended=True)), 0, "nothing"),
        (with_peer(replace(GONE, ended=True, last_lsn=103, acked_mark=103)), 3, "3 acknowledged"),
        (with_peer(replace(PEER, writable=True, acked_mark=109)), 9, "but b serves"),
        (with_peer(GONE, replace(OWN, pair=True)), 0, "only what this node confirmed"),
        (with_peer(GONE, replace(OWN, pair=True, solo=True)), None, "unknown"),
        (with_peer(GONE, replace(OWN, pair=True, solo_after_us=5 * SECOND)), 0, "nothing"),
        (with_peer(GONE, replace(OWN, pair=True, solo_after_us=3 * SECOND)), None, "unknown"),
        (replace(OWN, pair=True, peers=(GONE, replace(GONE, name="c"))), None, "b, c may"),
    ],
)
def test_what_would_be_lost(facts: Facts, records: int | None, words: str) -> None:
    bound = loss_bound(facts)
    assert bound.records == records
    assert words in bound.text


def test_a_term_is_numbered_above_any_that_was_heard_of() -> None:
    assert next_number(Facts(0)) == 1
    assert next_number(OWN) == 4
    assert next_number(replace(OWN, peer_term=9)) == 10
    assert next_number(with_peer(replace(PEER, term_number=6))) == 7


def test_who_should_be_promoted() -> None:
    longer = replace(PEER, name="c", last_lsn=101)
    later = replace(PEER, name="d", term_number=4, last_lsn=1)
    assert best_candidate([PEER, longer]) is longer
    assert best_candidate([PEER, longer, later]) is later
    assert best_candidate([replace(later, reachable=False), PEER]) is PEER
    assert best_candidate([]) is None
