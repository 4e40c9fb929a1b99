"""What was acknowledged stays known until the log has it, or an operator decided otherwise."""

from __future__ import annotations

import pytest

from tandemq.model.terms import Claim, Term
from tandemq_server.replication.known import NOTHING_KNOWN, Mark, lacking, learned

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def term(number: int, term_id: bytes, start: int, claim: Claim = Claim.ORDERED) -> Term:
    return Term(number, term_id, None, start, "n", False, int(claim))


ONE, MARK = term(1, A, 1), Mark(10, 1, A)


@pytest.mark.parametrize(
    ("terms", "last_lsn", "lacks"),
    [
        ([ONE], 10, 0),
        ([ONE], 9, 10),
        ([], 0, 10),
        # The next term begins behind it, at it, before it.
        ([ONE, term(2, B, 11)], 30, 0),
        ([ONE, term(2, B, 10)], 30, 10),
        ([ONE, term(2, B, 6)], 30, 10),
        # Of another history, however long it is and by whatever right but force.
        ([term(1, C, 1)], 30, 10),
        ([term(1, C, 1), term(2, B, 6)], 30, 10),
        ([ONE, term(2, B, 6, Claim.OWN)], 30, 10),
        ([ONE, term(2, B, 6, Claim.ITSELF)], 30, 10),
        # An operator decided, later; one who decided before knew nothing of it.
        ([ONE, term(2, B, 6, Claim.FORCED)], 30, 0),
        ([term(1, C, 1, Claim.FORCED)], 30, 10),
    ],
)
def test_a_log_lacks_what_was_acknowledged_until_it_has_it(
    terms: list[Term], last_lsn: int, lacks: int
) -> None:
    assert lacking(MARK, terms, last_lsn) == lacks
    assert lacking(NOTHING_KNOWN, terms, last_lsn) == 0


def test_what_is_lacking_is_not_forgotten_for_less() -> None:
    assert learned(MARK, Mark(4, 1, A), [ONE], 6) == MARK
    assert learned(MARK, Mark(12, 1, A), [ONE], 6) == Mark(12, 1, A)
    # The log has the old one: what it lacks is more.
    assert learned(MARK, Mark(8, 2, B), [ONE], 20) == Mark(8, 2, B)
    assert learned(MARK, Mark(4, 1, A), [ONE], 20) == MARK
