"""What this node knows to have been acknowledged, by whomever: it only grows.

A follower hears of more than it has. Were that forgotten, a second attempt or a restart would make
it a master without those records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tandemq.model.terms import Term, decided


class Mark(NamedTuple):
    """All up to `lsn` was acknowledged, as said in the term `number`, `term_id`."""

    lsn: int
    number: int
    term_id: bytes


NOTHING_KNOWN = Mark(0, 0, bytes(16))


def lacking(mark: Mark, terms: Sequence[Term], last_lsn: int) -> int:
    """`mark.lsn` where a log with these terms and this end lacks some of it; else 0.

    Nothing is lacking where an operator decided later, by force, that another log stands.
    """
    if not mark.lsn or any(term.number > mark.number and decided(term) for term in terms):
        return 0
    for at, term in enumerate(terms):
        if term.id == mark.term_id:
            end = terms[at + 1].start_lsn - 1 if at + 1 < len(terms) else last_lsn
            return 0 if mark.lsn <= min(end, last_lsn) else mark.lsn
    return mark.lsn


def learned(old: Mark, new: Mark, terms: Sequence[Term], last_lsn: int) -> Mark:
    """What to remember of the two. What the log has anyway may be forgotten for what it has not."""
    if new.lsn >= old.lsn or not lacking(old, terms, last_lsn):
        return new if lacking(new, terms, last_lsn) or new.lsn > old.lsn else old
    return old
