"""Each planted bug is caught, within so many seeds; the number it took is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from planted_bugs import PLANTED
from sim_checks import Violation
from sim_plan import make_plan
from sim_scenario import Scenario

#: Seeds tried before a bug counts as not seen.
SEEDS_MAX = 150
FIRST = 1


def seeds_until_caught(bug: str) -> tuple[int, str]:
    """(how many seeds it took, what was seen); 0 when it was not."""
    with pytest.MonkeyPatch.context() as patch:
        PLANTED[bug](patch)
        for count in range(1, SEEDS_MAX + 1):
            try:
                Scenario(make_plan(FIRST + count - 1)).run()
            except Violation as violation:
                return count, str(violation).strip().splitlines()[-1]
    return 0, ""


@pytest.mark.sim
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str, tell: Callable[[str], None]) -> None:
    count, seen = seeds_until_caught(bug)
    tell(f"{bug}: {count or 'not caught in ' + str(SEEDS_MAX)} seeds  {seen[:100]}")
    assert count, f"{bug} was not caught in {SEEDS_MAX} seeds"
