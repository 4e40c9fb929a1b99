"""Failovers by the thousand: the real node on a virtual clock, network and disk.

Every scenario is made from its seed alone. A violation prints the plan, what happened, and the
command that replays it; the seed then joins REGRESSIONS.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from sim_plan import make_plan
from sim_run import BATCH, run, run_batch
from sim_scenario import Scenario

#: Seeds that once found a fault of the product; what it was stands beside them.
REGRESSIONS = {
    12: "frames read from a link that had ended were applied",
    29: "two branches of one term number, decided by force: the loser was refused for ever",
    42: "a retry that was due while the node was fenced was asked for without end",
    58: "a promoted node whose clock was behind the log stood still for minutes",
    432: "a log trimmed before its replica was heard of: what it cut could not be rescued whole",
    5160: "pair mode that never goes alone went alone after a promotion nobody forced",
    101371: "a node that a rewind had left empty was promoted by force, and all else was cut",
    5950: "a session whose connection left during STARTUP held its task for ever",
}
#: How many fresh seeds; `SIM_SEEDS=100000` for a long run, from SIM_FIRST on.
SEEDS = int(os.environ.get("SIM_SEEDS", "2000"))
FIRST = int(os.environ.get("SIM_FIRST", "100000"))


@pytest.mark.sim
@pytest.mark.parametrize("seed", REGRESSIONS, ids=str)
def test_seeds_that_once_failed(seed: int) -> None:
    assert not run(seed)[1]


@pytest.mark.sim
def test_the_same_seed_gives_the_same_run() -> None:
    first, second = Scenario(make_plan(77)), Scenario(make_plan(77))
    first.run()
    second.run()
    assert _shown(first) == _shown(second)
    assert first.world.events == second.world.events


def _shown(scenario: Scenario) -> list[str]:
    # How long a recovery took is the one thing told of the real clock.
    return [line for line in scenario.world.lines if "recovered up to" not in line]


@pytest.mark.sim
@pytest.mark.timeout(1200 + SEEDS)
def test_failovers_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        batches = list(pool.map(run_batch, range(FIRST, FIRST + SEEDS, BATCH)))
    violations = [text for _, texts in batches for text in texts]
    operations = sum(ops for ops, _ in batches)
    with capsys.disabled():
        print(f" {len(batches) * BATCH} scenarios, {operations} operations ", end="")
    assert operations > 100 * SEEDS
    assert not violations, "\n\n".join(violations[:3])
