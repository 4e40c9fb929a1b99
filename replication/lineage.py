"""The terms a log went through, oldest first; where two logs part, and which of them wins.

Terms are compared by their random ids, never by number alone: two nodes can both open "term 5".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from tandemq.model.terms import TERM_FIELDS, Claim, Term, is_claim

ID_BYTES = 16
#: More terms than this in one log are a fault of somebody, not a history.
TERMS_MAX = 1_000_000


class LineageError(Exception):
    """Terms that cannot be the history of one log. `reason` is one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def term_from(fields: Sequence[Any]) -> Term:
    """A term from its plain fields, as decoded; the claim may be missing.

    Raises `LineageError` when one has a wrong type.
    """
    if len(fields) not in (TERM_FIELDS, TERM_FIELDS + 1):
        raise LineageError(
            f"a term has {TERM_FIELDS} or {TERM_FIELDS + 1} fields, not {len(fields)}"
        )
    number, term_id, parent, start_lsn, node, solo = fields[:TERM_FIELDS]
    claim = fields[TERM_FIELDS] if len(fields) > TERM_FIELDS else Claim.OLDER
    if (
        type(number) is not int
        or number < 0
        or type(start_lsn) is not int
        or start_lsn < 1
        or not isinstance(node, str)
        or type(solo) is not bool
        or not is_claim(claim)
    ):
        raise LineageError("a term's number, start LSN, node, solo flag or claim has a wrong type")
    if not isinstance(term_id, bytes) or len(term_id) != ID_BYTES:
        raise LineageError(f"a term's id is not {ID_BYTES} bytes")
    if parent is not None and (not isinstance(parent, bytes) or len(parent) != ID_BYTES):
        raise LineageError(f"a term's parent is not {ID_BYTES} bytes")
    return Term(number, term_id, parent, start_lsn, node, solo, int(claim))


class Lineage:
    """The terms of one log, immutable. Empty for a log that never had a record."""

    __slots__ = ("_starts", "terms")

    def __init__(self, terms: Iterable[Sequence[Any]] = ()) -> None:
        """`terms`: six fields each, oldest first. Raises `LineageError` when they do not chain."""
        found = tuple(term_from(fields) for fields in terms)
        if len(found) > TERMS_MAX:
            raise LineageError(f"{len(found)} terms are over the limit of {TERMS_MAX}")
        for before, term in pairwise(found):
            _check_follows(before, term)
        self.terms = found
        self._starts = [term.start_lsn for term in found]

    def __len__(self) -> int:
        return len(self.terms)

    def __iter__(self) -> Iterator[Term]:
        return iter(self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lineage) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __repr__(self) -> str:
        shown = ", ".join(f"{t.number}/{t.id[:4].hex()}@{t.start_lsn}" for t in self.terms)
        return f"Lineage({shown})"

    @property
    def last(self) -> Term | None:
        return self.terms[-1] if self.terms else None

    @property
    def number(self) -> int:
        """The number of the last term, 0 when there is none."""
        return self.terms[-1].number if self.terms else 0

    def term_at(self, lsn: int) -> Term | None:
        """The term that the record of `lsn` belongs to; None before the first term.

        A LSN past the end of the log is said to be of the last term.
        """
        at = bisect_right(self._starts, lsn) - 1
        return self.terms[at] if at >= 0 else None

    def contains(self, term_id: bytes) -> bool:
        return any(term.id == term_id for term in reversed(self.terms))

    def extend(self, term: Sequence[Any]) -> Lineage:
        """This lineage and one term more. Raises `LineageError` when it does not follow."""
        new = term_from(term)
        if self.terms:
            _check_follows(self.terms[-1], new)
        longer = object.__new__(Lineage)
        longer.terms = (*self.terms, new)
        longer._starts = [*self._starts, new.start_lsn]
        return longer

    def cut_after(self, lsn: int) -> Lineage:
        """What is left of the lineage once every record after `lsn` is gone."""
        kept = object.__new__(Lineage)
        kept.terms = self.terms[: bisect_right(self._starts, lsn)]
        kept._starts = self._starts[: len(kept.terms)]
        return kept

    def shared_with(self, other: Lineage) -> int:
        """How many terms, counted from the oldest, both have.

        Raises `LineageError` when one id stands for two different terms.
        """
        count = 0
        for ours, theirs in zip(self.terms, other.terms, strict=False):
            if ours.id != theirs.id:
                break
            if ours != theirs:
                raise LineageError(
                    f"term id {ours.id.hex()} is {ours.number} from LSN {ours.start_lsn} here and "
                    f"{theirs.number} from LSN {theirs.start_lsn} there"
                )
            count += 1
        return count

    def common_point(self, other: Lineage, my_last_lsn: int, other_last_lsn: int) -> int:
        """The last LSN that both logs have as the same record, 0 for none.

        Each shared term is common up to where the first of the two logs left it (KIP-101/279:
        never up to some local mark). Raises `LineageError`.
        """
        shared = self.shared_with(other)
        if not shared:
            return 0
        return min(self._end(shared, my_last_lsn), other._end(shared, other_last_lsn))

    def _end(self, count: int, last_lsn: int) -> int:
        """The last LSN of this log within its first `count` terms."""
        return self.terms[count].start_lsn - 1 if count < len(self.terms) else last_lsn


def _check_follows(before: Term, term: Term) -> None:
    if term.parent != before.id:
        raise LineageError(
            f"term {term.number} ({term.id.hex()}) does not have term {before.number} "
            f"({before.id.hex()}) as its parent"
        )
    if term.number <= before.number or term.start_lsn <= before.start_lsn:
        raise LineageError(
            f"term {term.number} from LSN {term.start_lsn} cannot follow "
            f"term {before.number} from LSN {before.start_lsn}"
        )
