"""Failovers by themselves, by the thousand: an arbiter whose answers are late, lost and doubled.

Nobody forces anything, so nothing that was acknowledged may be cut, and all heals by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.simulation.seat_bugs import PLANTED
from tests.simulation.sim_seated import BATCH, run, run_batch

#: How many seeds; `SEATED_SEEDS=10000` by hand.
SEEDS = int(os.environ.get("SEATED_SEEDS", "900"))
FIRST = int(os.environ.get("SEATED_FIRST", "1000"))
SHARES = 4
FIRSTS = [range(FIRST + BATCH * at, FIRST + SEEDS, BATCH * SHARES) for at in range(SHARES)]
#: Seeds tried before a bug counts as not seen.
SEEDS_MAX = 120


@pytest.mark.sim
@pytest.mark.timeout(600 + SEEDS)
@pytest.mark.parametrize("share", range(SHARES))
def test_takeovers_lose_nothing(share: int, tell: Callable[[str], None]) -> None:
    batches = [run_batch(first) for first in FIRSTS[share]]
    violations = [text for _, texts in batches for text in texts]
    failovers = sum(found for found, _ in batches)
    scenarios = BATCH * len(batches)
    tell(f"simulation with an arbiter, share {share}: {scenarios} scenarios, {failovers} failovers")
    assert not violations, "\n\n".join(violations[:3])
    assert failovers > 2 * scenarios


@pytest.mark.sim
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_of_the_seat_is_caught(bug: str, tell: Callable[[str], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        PLANTED[bug](patch)
        for count in range(1, SEEDS_MAX + 1):
            if problem := run(count)[1]:
                tell(f"{bug}: {count} seeds  {problem.splitlines()[-2][:100]}")
                return
    pytest.fail(f"{bug} was not caught in {SEEDS_MAX} seeds")
