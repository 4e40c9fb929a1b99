"""A term: the time one node leads, and by what right it began. One for log, links and roles."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

#: number, id, parent, start LSN, node, solo; behind them the claim, in terms that have one.
TERM_FIELDS = 6


class Claim(IntEnum):
    """By what right a term began; what that is worth is in `replication.standing`.

    OLDER: it was written before claims were. OWN: its node leads on, pair mode changed its mind.
    ITSELF: the node's configuration wants it to serve. ORDERED: an operator asked for it. FORCED:
    an operator decided that it stands, whatever else there is.
    """

    OLDER = 0
    OWN = 1
    ITSELF = 2
    ORDERED = 3
    FORCED = 4


class TermId(NamedTuple):
    """What tells a term apart: the id. Two nodes can both open "term 5"."""

    number: int
    id: bytes


class Term(NamedTuple):
    """The fields of the TERM op. Its own record has LSN `start_lsn`.

    solo: the term began without proof that no other node holds more (a forced promotion, or pair
    mode that went on alone), so its node may acknowledge what no second node has.
    """

    number: int
    id: bytes
    parent: bytes | None
    start_lsn: int
    node: str
    solo: bool
    claim: int = int(Claim.OLDER)


#: Of a log without a record.
NO_TERM = TermId(0, bytes(16))


def last_term(terms: Sequence[Term]) -> TermId:
    """The last of a log's terms."""
    return TermId(terms[-1].number, terms[-1].id) if terms else NO_TERM


def plain_term(term: Term) -> list[Any]:
    """The fields as they are stored: a term without a claim as older nodes wrote it."""
    return list(term[:TERM_FIELDS]) if term.claim == Claim.OLDER else list(term)


def is_claim(value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and Claim.OLDER <= value <= Claim.FORCED


def decided(term: Term) -> bool:
    """An operator knew what this term gives up. Older terms only tell that they were solo."""
    return term.claim == Claim.FORCED or (term.claim == Claim.OLDER and term.solo)
