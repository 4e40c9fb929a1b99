"""Failovers by the thousand: the real node on a virtual clock, network and disk.

Every scenario is made from its seed alone. A violation prints the plan, what happened, and the
command that replays it; the seed then joins REGRESSIONS.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from tandemq.model.record import HEADER_SIZE, TERM, decode_body
from tests.simulation.sim_dimensions import LATER
from tests.simulation.sim_plan import make_plan
from tests.simulation.sim_run import BATCH, run, run_batch
from tests.simulation.sim_scenario import Scenario
from tests.simulation.sim_world import SECOND

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
    200332: "the disk did not list its snapshots for a replica that waited for one",
    100348: "the judge took a put nobody heard of, and cut, for its repetition that stayed",
}
#: Seeds of wide plans; a plan changes with its dimensions, so the fault has a test of its own, too.
WIDE_REGRESSIONS = {
    157: "a segment made by a killed process, its name not synced, went with a later power cut",
    100288: "likewise, confirmed to the master before",
    908: "frames of the master that lost, behind those of the winner, alarmed who followed both",
    101246: "frames of the winner, behind those of the master that lost: likewise",
    100962: "a promotion waited for a; b's answer was older than b's own promotion by force",
    103021: "a new term was in the log before its master's heartbeat, and was taken for one's own",
    201697: "a disk that failed to read a snapshot was taken for logs that differ",
    205425: "copies of a cut that did not happen were listed as if records were lost",
    205498: "two logs that parted by force, one id of two tasks in one hand (known)",
    300229: "frames of two terms of one number, one by force, alarmed who followed both",
    404141: "the judge took a confirmation sent before its disk was lost for none",
    258: "an ack in a whole state that was saved: told nowhere (known, left out)",
}
#: Seeds of plans with every dimension there is; likewise.
WHOLE_REGRESSIONS = {
    703981: "the judge took a confirmation for none that its sender had cut since, by force",
    707504: "likewise, sent to a master whom force had chosen before",
    707136: "a snapshot for a replica that waited failed, and it waited for ever",
    709122: "likewise",
    720487: "a node whose log had failed took its master's word for what was committed",
    722958: "the judge missed that a take was answered in a state that was saved as a whole",
    724182: "copies of a cut that did not happen stayed, and nobody could tell any more",
    724882: "of three nodes one served that had heard, by a third, of another's newer term",
}
#: How many fresh seeds; `SIM_SEEDS=100000` for a long run, from SIM_FIRST on.
SEEDS = int(os.environ.get("SIM_SEEDS", "2000"))
FIRST = int(os.environ.get("SIM_FIRST", "100000"))
#: First seeds of batches, dealt into shares that test processes can take in turn.
SHARES = 8
FIRSTS = [range(FIRST + BATCH * at, FIRST + SEEDS, BATCH * SHARES) for at in range(SHARES)]


@pytest.mark.sim
@pytest.mark.parametrize("seed", REGRESSIONS, ids=str)
def test_seeds_that_once_failed(seed: int) -> None:
    assert not run(seed, wide=False)[1]


@pytest.mark.sim
@pytest.mark.parametrize("seed", WIDE_REGRESSIONS, ids=str)
def test_wide_seeds_that_once_failed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # As they were when they failed, whatever is switched off now.
    monkeypatch.setenv("SIM_WITH", "b_three_forced")
    monkeypatch.setenv("SIM_WITHOUT", ",".join(LATER))
    assert not run(seed)[1]


@pytest.mark.sim
@pytest.mark.parametrize("seed", WHOLE_REGRESSIONS, ids=str)
def test_whole_seeds_that_once_failed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed < 760_000:
        # As they were when they failed.
        monkeypatch.setenv("SIM_WITHOUT", "y_dropped")
    assert not run(seed)[1]


@pytest.mark.sim
def test_time_without_a_master_is_counted_over_a_snapshot_of_a_replica() -> None:
    """Nobody serves from b's term 2 on; a takes a snapshot meanwhile, restarts from it and leads.

    It was taken as a sign of a master, so that sessions ended as soon as a served.
    """
    scenario = Scenario(make_plan(4854))
    scenario.run()
    log = scenario.machines["a"].storage.log
    assert log is not None
    records = [
        record
        for header, frame in log.read_from(log.first_lsn)
        for record in decode_body(memoryview(frame)[HEADER_SIZE:], header.count)
    ]
    third = next(at for at, record in enumerate(records) if record[3][0][:2] == [TERM, 3])
    later = next(op[2][1] for op in records[third][3] if "sessions_later_us" in str(op))
    assert later == records[third][0] - records[third - 1][0] > 4 * SECOND


@pytest.mark.sim
def test_the_same_seed_gives_the_same_run() -> None:
    first, second = Scenario(make_plan(77)), Scenario(make_plan(77))
    first.run()
    second.run()
    assert _shown(first) == _shown(second)
    assert first.world.events == second.world.events


@pytest.mark.sim
def test_the_order_of_hashes_changes_nothing() -> None:
    """A seed is the same run in every process."""
    told = set()
    for number in ("1", "2"):
        program = [sys.executable, "-m", "tests.simulation.sim_run", "17"]
        environment = {**os.environ, "PYTHONHASHSEED": number}
        done = subprocess.run(program, capture_output=True, text=True, env=environment)
        told.add(done.stdout.partition(" failures")[0])
    assert len(told) == 1, told


def _shown(scenario: Scenario) -> list[str]:
    # How long a recovery took is the one thing told of the real clock.
    return [line for line in scenario.world.lines if "recovered up to" not in line]


@pytest.fixture(scope="module")
def spread() -> Iterator[Callable[..., Iterable[tuple[int, list[str]]]]]:
    """`map` over all cores; that of this process alone where other tests run beside it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        yield map
        return
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        yield pool.map


def test_the_shares_are_all_seeds_once() -> None:
    assert sorted(first for share in FIRSTS for first in share) == list(
        range(FIRST, FIRST + SEEDS, BATCH)
    )


@pytest.mark.sim
@pytest.mark.timeout(1200 + SEEDS)
@pytest.mark.parametrize("share", range(len(FIRSTS)))
def test_failovers_lose_nothing(share: int, spread: Any, tell: Callable[[str], None]) -> None:
    batches = list(spread(run_batch, FIRSTS[share]))
    violations = [text for _, texts in batches for text in texts]
    operations = sum(ops for ops, _ in batches)
    scenarios = BATCH * len(batches)
    tell(f"simulation, share {share}: {scenarios} scenarios, {operations} operations")
    assert len(batches) == len(FIRSTS[share])
    assert operations > 100 * scenarios
    assert not violations, "\n\n".join(violations[:3])
