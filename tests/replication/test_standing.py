"""What outranks what: every combination of short histories, and the table of docs/failover.md."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from tandemq.model.terms import Claim, Term
from tandemq_server.replication.standing import Outcome, Standing, contest, standing_of

MIRRORED = {
    Outcome.ABOVE: Outcome.BELOW,
    Outcome.BELOW: Outcome.ABOVE,
    Outcome.SAME: Outcome.SAME,
    Outcome.CONFLICT: Outcome.CONFLICT,
}
#: The log both nodes have: one leadership of ten records.
SHARED = Term(1, b"s" * 16, None, 1, "a", False, int(Claim.ORDERED))
FORK = 10
BRANCHES = [()] + [
    branch
    for length in (1, 2)
    for branch in product((Claim.OWN, Claim.ITSELF, Claim.ORDERED, Claim.FORCED), repeat=length)
]

Side = tuple[tuple[Claim, ...], int, Standing]


def sides(node: str) -> Iterator[Side]:
    """(claims after the fork, records acknowledged behind it, what it has to show)."""
    for claims, gap, own_records, acked, leads in product(
        BRANCHES, (1, 2), (0, 5), (0, 1, 3), (False, True)
    ):
        # Only the master of the shared leadership goes on in it.
        if own_records and node != "a":
            continue
        terms = [SHARED]
        end = FORK + own_records
        if claims and claims[0] is Claim.OWN and node != "a":
            continue
        for place, claim in enumerate(claims):
            number = terms[-1].number + gap
            term_id = f"{node}{place}{gap}{claim}".encode().ljust(16, b".")
            terms.append(Term(number, term_id, terms[-1].id, end + 1, node, False, int(claim)))
            # Its own record, and two of clients.
            end += 3
        commit = {0: FORK, 1: FORK + own_records, 3: end}[acked]
        standing = standing_of(terms, commit, leads)
        yield claims, max(0, standing.acked_lsn - FORK), standing


def pairs() -> Iterator[tuple[Side, Side, Outcome]]:
    for ours, theirs in product(sides("a"), sides("b")):
        yield ours, theirs, contest(ours[2], theirs[2], FORK)


def test_both_sides_say_the_same_of_every_combination() -> None:
    count = 0
    for ours, theirs, outcome in pairs():
        assert contest(theirs[2], ours[2], FORK) is MIRRORED[outcome], (ours, theirs)
        count += 1
    assert count > 50_000


def test_force_outranks_whatever_nobody_forced() -> None:
    for ours, theirs, outcome in pairs():
        forced = [Claim.FORCED in side[0] for side in (ours, theirs)]
        if forced[0] != forced[1]:
            assert outcome is (Outcome.ABOVE if forced[0] else Outcome.BELOW), (ours, theirs)


def test_what_nobody_ordered_and_that_acknowledged_nothing_outranks_no_acknowledgement() -> None:
    """Whatever its numbers are, and however often its leadership goes on."""
    for ours, theirs, outcome in pairs():
        for mine, other, above in ((ours, theirs, Outcome.ABOVE), (theirs, ours, Outcome.BELOW)):
            empty = set(mine[0]) <= {Claim.OWN, Claim.ITSELF} and not mine[1]
            if empty and other[1] and other[2].last_id != mine[2].last_id:
                assert outcome is not above, (mine, other)


def test_a_lead_that_goes_on_is_no_higher_claim_than_before() -> None:
    """The same history with one term more of its own, of any number."""
    for ours, theirs in product(sides("a"), sides("b")):
        if len(ours[0]) != 2 or ours[0][1] is not Claim.OWN or ours[0][0] is Claim.OWN:
            continue
        with_it = contest(ours[2], theirs[2], FORK)
        without = contest(
            ours[2]._replace(last=ours[2].lead, last_id=ours[2].lead_id), theirs[2], FORK
        )
        tied = ours[2].lead == theirs[2].lead or 0 < ours[2].forced == theirs[2].forced
        assert tied or with_it is without, (ours, theirs)


def test_a_conflict_is_of_two_that_acknowledged_by_the_same_right() -> None:
    met = 0
    for ours, theirs, outcome in pairs():
        if outcome is Outcome.CONFLICT:
            met += 1
            assert ours[2].acked
            assert theirs[2].acked
            assert ours[2].forced == theirs[2].forced
    assert met


def test_there_is_an_order_and_no_circle_among_three() -> None:
    everything = [side for node in "abc" for side in sides(node) if len(side[0]) < 2]
    for one, two, three in combinations(everything[::3], 3):
        first, second = contest(one[2], two[2], FORK), contest(two[2], three[2], FORK)
        if first is second is Outcome.ABOVE:
            assert contest(one[2], three[2], FORK) is not Outcome.BELOW, (one, two, three)


def test_terms_of_older_nodes_count_by_their_numbers() -> None:
    older = [Term(1, b"x" * 16, None, 1, "a", False), Term(2, b"y" * 16, b"x" * 16, 11, "b", True)]
    newer = [*older[:1], Term(3, b"z" * 16, b"x" * 16, 11, "a", False)]
    assert contest(standing_of(older, 20), standing_of(newer, 10)) is Outcome.BELOW
    rival = [*older[:1], Term(2, b"z" * 16, b"x" * 16, 11, "a", False)]
    assert contest(standing_of(older, 20), standing_of(rival, 20)) is Outcome.CONFLICT
    assert contest(standing_of(older, 20), standing_of(rival, 11)) is Outcome.ABOVE
