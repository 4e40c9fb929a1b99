"""Plans that lead straight to where a planted bug shows, drawn from a seed like the others."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random

from tests.simulation.sim_dimensions import bulk, dropped, truncated
from tests.simulation.sim_plan import Action, Plan, make_plan
from tests.simulation.sim_world import MS, SECOND


def split_by_force(seed: int) -> Plan:
    """Both nodes are put over each other while they are cut apart: two terms of one number.

    No rule of the cluster brings that about any more, only somebody who forces twice.
    """
    chance, at = _drawn(seed)
    return _story(
        seed,
        Action(at, "cut", "a", 6 * SECOND),
        Action(at + chance.randint(100 * MS, SECOND), "force", "b"),
        Action(at + 1_500 * MS, "demote", "a"),
        Action(at + chance.randint(2 * SECOND, 3 * SECOND), "force", "a"),
    )


def asked_in_the_dark(seed: int) -> Plan:
    """The one that is cut off is asked, without force, to lead."""
    chance, at = _drawn(seed)
    return _story(
        seed,
        Action(at, "cut", "a", 3 * SECOND),
        Action(at + chance.randint(500 * MS, 2 * SECOND), "promote", "b"),
    )


def clock_behind_the_log(seed: int) -> Plan:
    """Who returns with a clock minutes behind catches up from one that leads no more, and leads.

    Nobody leads from whom it could have taken the time.
    """
    chance, at = _drawn(seed)
    return _story(
        seed,
        Action(at, "skew", "a", 0, -chance.randint(200, 600)),
        Action(at, "kill", "a", 4 * SECOND, "writable"),
        Action(at + 200 * MS, "force", "b"),
        Action(at + chance.randint(3_000 * MS, 3_500 * MS), "demote", "b"),
    )


def sync_fails(seed: int) -> Plan:
    """A sync of the replica fails, and what it was to write is gone with the power after it."""
    chance, at = _drawn(seed)
    value = ("sync", errno.EIO, chance.randint(1, 4))
    plan = _story(
        seed,
        Action(at, "disk_error", "b", 2 * SECOND, value),
        Action(at + chance.randint(200 * MS, SECOND), "power", "b", 50 * MS, "same"),
    )
    return replace(plan, wal_mode="fsync")


def moved_by_filter(seed: int) -> Plan:
    """An operator's calls on many tasks are among the load."""
    plan = replace(make_plan(seed), actions=(Action(5 * SECOND, "snapshot", "a"),))
    return replace(bulk(plan, Random(seed)), dimensions=plan.dimensions | {"y_bulk"})


def emptied(seed: int) -> Plan:
    """A tube in use is emptied now and then."""
    plan = replace(make_plan(seed), actions=(Action(5 * SECOND, "snapshot", "a"),))
    dimensions = plan.dimensions - {"y_bulk"} | {"y_truncated"}
    return replace(truncated(plan, Random(seed)), dimensions=dimensions)


def dropped_again(seed: int) -> Plan:
    """A tube is made, used and dropped again and again."""
    plan = replace(make_plan(seed), actions=(Action(5 * SECOND, "snapshot", "a"),))
    return replace(dropped(plan, Random(seed)), dimensions=plan.dimensions | {"y_dropped"})


def _drawn(seed: int) -> tuple[Random, int]:
    chance = Random(f"{seed}/story")
    return chance, chance.randint(SECOND, 2 * SECOND)


def _story(seed: int, *actions: Action) -> Plan:
    plan = make_plan(seed, wide=False)
    return replace(plan, actions=actions, ack="local", solo_after=5.0)
