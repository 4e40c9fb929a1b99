"""A term in a log: its plain fields, and by what right it began.

Lineages, segments and snapshots each have a class of their own for it; the list is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

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


def plain_term(term: Sequence[Any]) -> list[Any]:
    """The fields as they are stored: a term without a claim as older nodes wrote it."""
    return list(term[:TERM_FIELDS]) if claim_of(term) is Claim.OLDER else list(term)


def claim_of(term: Sequence[Any]) -> Claim:
    return Claim(term[TERM_FIELDS]) if len(term) > TERM_FIELDS else Claim.OLDER


def is_claim(value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and Claim.OLDER <= value <= Claim.FORCED


def decided(term: Sequence[Any]) -> bool:
    """An operator knew what this term gives up. Older terms only tell that they were solo."""
    claim = claim_of(term)
    return claim is Claim.FORCED or bool(claim is Claim.OLDER and term[5])
