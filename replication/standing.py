"""Which of two logs stands: what outranks what, in one pure function.

Numbers alone do not tell: attempts inflate them, and a node that goes on alone takes one. The rules
are a table in docs/failover.md; `tests/replication/test_standing.py` tries every combination.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from tandemq.model.terms import Claim, Term

ID_BYTES = 16
NO_ID = bytes(ID_BYTES)


class Standing(NamedTuple):
    """What a log has to show for itself. Numbers are of terms, 0 for none.

    forced: the last term an operator forced. lead: the last one that counts: begun by order, by
    force, or by itself and then something was acknowledged in it; a term in which its node only
    leads on is part of that. acked: something was acknowledged in the lead; acked_lsn: the last
    such record. empty: behind the lead stand terms that count for nothing. last_*: of the last
    term, whatever it is. leads: its node serves, or is about to.
    """

    forced: int
    forced_id: bytes
    lead: int
    lead_id: bytes
    acked: bool
    acked_lsn: int
    empty: bool
    last: int
    last_start: int
    last_id: bytes
    leads: bool


class Outcome(StrEnum):
    """Of our log against theirs. CONFLICT: both acknowledged by the same right: for an operator."""

    SAME = "same"
    ABOVE = "above"
    BELOW = "below"
    CONFLICT = "conflict"


def standing_of(terms: Sequence[Term], commit_lsn: int, leads: bool = False) -> Standing:
    """Of a log with these terms, oldest first, as far as it is known to be acknowledged."""
    if not terms:
        return Standing(0, NO_ID, 0, NO_ID, False, 0, False, 0, 0, NO_ID, False)
    forced = next((t for t in reversed(terms) if t.claim == Claim.FORCED), None)
    lead, acked_lsn, empty = terms[0], commit_lsn, False
    for term in reversed(terms):
        if term.claim == Claim.OWN:
            continue
        if term.claim == Claim.ITSELF and commit_lsn <= term.start_lsn and term is not terms[0]:
            acked_lsn, empty = min(acked_lsn, term.start_lsn - 1), True
            continue
        lead = term
        break
    last = terms[-1]
    return Standing(
        forced.number if forced is not None else 0,
        forced.id if forced is not None else NO_ID,
        lead.number,
        lead.id,
        acked_lsn > lead.start_lsn,
        acked_lsn,
        empty,
        last.number,
        last.start_lsn,
        last.id,
        leads,
    )


def contest(ours: Standing, theirs: Standing, fork: int | None = None) -> Outcome:
    """The first line of the table that tells the two apart decides. Mirrored on the other side.

    fork: the last LSN both logs have as the same record, None where it is not known.
    """
    if ours.last_id == theirs.last_id:
        return Outcome.SAME
    if ours.forced != theirs.forced:
        return _above(ours.forced > theirs.forced)
    same_force = ours.forced_id == theirs.forced_id
    if same_force and ours.lead != theirs.lead:
        return _above(ours.lead > theirs.lead)
    if not same_force or ours.lead_id != theirs.lead_id:
        if ours.acked and theirs.acked:
            return Outcome.CONFLICT
        if ours.acked != theirs.acked:
            return _above(ours.acked)
    elif fork is not None and max(ours.acked_lsn, theirs.acked_lsn) > fork:
        # A lead has one master: only its own log has what it acknowledged last.
        return _above(ours.acked_lsn > theirs.acked_lsn)
    if ours.leads != theirs.leads:
        return _above(ours.leads)
    if ours.empty != theirs.empty:
        return _above(theirs.empty)
    # Neither has anything to lose; both sides must only choose the same one.
    return _above(ours[7:10] > theirs[7:10])


def _above(ours: bool) -> Outcome:
    return Outcome.ABOVE if ours else Outcome.BELOW
