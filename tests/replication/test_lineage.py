"""Histories of terms: chaining, the point where two logs part, and who wins."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq.model.terms import Term
from tandemq_server.replication.lineage import Lineage, LineageError

A, B, C, D = (bytes([n]) * 16 for n in range(1, 5))


def term(number: int, own: bytes, parent: bytes | None, start: int, solo: bool = False) -> Term:
    return Term(number, own, parent, start, "node", solo)


ONE = Lineage([term(1, A, None, 1), term(3, B, A, 10), term(4, C, B, 20)])


@pytest.mark.parametrize(
    ("lsn", "number"), [(0, None), (1, 1), (9, 1), (10, 3), (19, 3), (20, 4), (10**9, 4)]
)
def test_the_term_of_a_record(lsn: int, number: int | None) -> None:
    found = ONE.term_at(lsn)
    assert (found.number if found else None) == number


@pytest.mark.parametrize(("lsn", "left"), [(0, 0), (9, 1), (10, 2), (19, 2), (20, 3), (99, 3)])
def test_what_a_cut_leaves(lsn: int, left: int) -> None:
    assert ONE.cut_after(lsn) == Lineage(ONE.terms[:left])
    assert ONE.cut_after(lsn).term_at(lsn) == ONE.term_at(lsn)


def test_extending_is_building() -> None:
    grown = Lineage()
    for one in ONE:
        grown = grown.extend(one)
    assert grown == ONE
    assert hash(grown) == hash(ONE)
    assert ONE.contains(B)
    assert not ONE.contains(D)
    assert (ONE.number, Lineage().number, len(ONE)) == (4, 0, 3)
    assert repr(ONE) == "Lineage(1/01010101@1, 3/02020202@10, 4/03030303@20)"


@pytest.mark.parametrize(
    "bad",
    [
        term(5, D, B, 30),
        term(5, D, None, 30),
        term(4, D, C, 30),
        term(5, D, C, 20),
        (5, D, C, 30, "node"),
        (5, D, C, 30, "node", 1),
        (5, "text", C, 30, "node", False),
        (5, D, b"x", 30, "node", False),
        (True, D, C, 30, "node", False),
        (5, D, C, 0, "node", False),
    ],
)
def test_what_does_not_follow_is_refused(bad: Any) -> None:
    with pytest.raises(LineageError):
        ONE.extend(bad)
    with pytest.raises(LineageError):
        Lineage([*ONE, bad])


@pytest.mark.parametrize(
    ("other", "mine", "theirs", "fork"),
    [
        (ONE, 30, 30, 30),
        (ONE, 30, 25, 25),
        (ONE, 22, 25, 22),
        (Lineage(), 30, 0, 0),
        (Lineage([term(1, D, None, 1)]), 30, 30, 0),
        (Lineage(ONE.terms[:2]), 30, 15, 15),
        # The other went on in term 3 past the LSN at which term 4 began here.
        (Lineage(ONE.terms[:2]), 30, 40, 19),
        (Lineage([*ONE.terms[:2], term(4, D, B, 15)]), 30, 40, 14),
        (Lineage([*ONE.terms[:2], term(4, D, B, 25)]), 30, 40, 19),
        (Lineage([ONE.terms[0], term(4, D, A, 5)]), 30, 40, 4),
    ],
)
def test_the_common_point(other: Lineage, mine: int, theirs: int, fork: int) -> None:
    assert ONE.common_point(other, mine, theirs) == fork
    assert other.common_point(ONE, theirs, mine) == fork


def test_one_id_for_two_terms_is_refused() -> None:
    twisted = Lineage([term(1, A, None, 1), term(3, B, A, 11)])
    with pytest.raises(LineageError, match="is 3 from LSN 10 here and 3 from LSN 11 there"):
        ONE.common_point(twisted, 30, 30)


@given(st.integers(0, 2**32))
def test_the_common_point_against_record_by_record(seed: int) -> None:
    """Two logs grown from a common start; compared as lists of (term, position) it is the same."""
    rng = Random(seed)

    def grow(lineage: Lineage, log: list[bytes], terms: int) -> tuple[Lineage, list[bytes]]:
        log = list(log)
        for _ in range(terms):
            last = lineage.last
            own = rng.randbytes(16)
            number = lineage.number + rng.randint(1, 2)
            parent = last.id if last else None
            lineage = lineage.extend((number, own, parent, len(log) + 1, "n", False))
            log += [own] * rng.randint(1, 5)
        return lineage, log

    base, shared = grow(Lineage(), [], rng.randint(0, 4))
    # Each takes part of the shared log and goes on by itself.
    sides = []
    for _ in range(2):
        keep = rng.randint(0, len(shared))
        sides.append(grow(base.cut_after(keep), shared[:keep], rng.randint(0, 2)))
    (one, one_log), (other, other_log) = sides
    brute = 0
    while brute < min(len(one_log), len(other_log)) and one_log[brute] == other_log[brute]:
        brute += 1
    assert one.common_point(other, len(one_log), len(other_log)) == brute
