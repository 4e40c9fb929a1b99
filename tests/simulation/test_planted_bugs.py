"""Each planted bug is caught, within a few seeds; the number it took is told.

What catches it is the bug: the very same plan runs to its end without it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import sim_world
from tests.simulation.planted_bugs import PLANTED
from tests.simulation.sim_checks import Violation
from tests.simulation.sim_plan import Plan, make_plan
from tests.simulation.sim_scenario import Scenario
from tests.simulation.sim_stories import (
    asked_in_the_dark,
    clock_behind_the_log,
    dropped_again,
    emptied,
    moved_by_filter,
    split_by_force,
    sync_fails,
)

#: Seeds tried before a bug counts as not seen.
SEEDS_MAX = 30
#: Plans without a bug have 20,000 at most: whoever goes round in circles is stopped early.
EVENTS_MAX = 25_000
#: Bugs that plans drawn at random meet too rarely, and the story that leads to them.
STORIES: dict[str, Callable[[int], Plan]] = {
    "compare_terms_by_number": split_by_force,
    "continue_where_a_rewind_is_due": split_by_force,
    "ignore_newer_terms": split_by_force,
    "keep_a_rewound_state_in_memory": split_by_force,
    "rewind_without_rescue": split_by_force,
    "follow_while_leading": asked_in_the_dark,
    "sleep_instead_of_barrier": asked_in_the_dark,
    "let_time_stand_after_a_promotion": clock_behind_the_log,
    "confirm_before_durable": sync_fails,
    "count_what_was_written_during_a_sync": sync_fails,
    "roll_without_syncing_the_directory": sync_fails,
    "skip_fsync": sync_fails,
    "take_a_failed_sync_for_done": sync_fails,
    "leave_what_is_moved_by_filter": moved_by_filter,
    "lose_what_is_moved_by_filter": moved_by_filter,
    "lose_truncations_on_the_replica": emptied,
    "lose_drops_on_the_replica": dropped_again,
}


def seen(plan: Plan) -> str:
    """What the judges say of it; empty when nothing is wrong."""
    try:
        Scenario(plan).run()
    except Violation as violation:
        return str(violation).strip().splitlines()[-1]
    return ""


def until_caught(bug: str) -> tuple[int, str]:
    """(the seed that showed it, what was seen); 0 when none did."""
    story = STORIES.get(bug, make_plan)
    with pytest.MonkeyPatch.context() as patch:
        PLANTED[bug](patch)
        for seed in range(1, SEEDS_MAX + 1):
            if found := seen(story(seed)):
                return seed, found
    return 0, ""


@pytest.mark.sim
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(
    bug: str, tell: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim_world, "EVENTS_MAX", EVENTS_MAX)
    seed, found = until_caught(bug)
    tell(f"{bug}: {seed or 'not caught in ' + str(SEEDS_MAX)} seeds  {found[:100]}")
    assert seed, f"{bug} was not caught in {SEEDS_MAX} seeds"
    assert not seen(STORIES.get(bug, make_plan)(seed)), "it is not the bug that is seen"


def test_every_story_is_of_a_bug_there_is() -> None:
    assert STORIES.keys() <= PLANTED.keys()
