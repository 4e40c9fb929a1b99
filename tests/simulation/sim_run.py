"""`python -m tests.simulation.sim_run SEED [COUNT]`: replay one scenario, or run many."""

from __future__ import annotations

import sys
import time

from tests.simulation.sim_checks import Violation
from tests.simulation.sim_plan import make_plan
from tests.simulation.sim_scenario import Scenario

#: A scenario that takes longer is told of.
SLOW_SECONDS = 3.0
#: Seeds that one process runs in one go.
BATCH = 25


def explain(scenario: Scenario, violation: Violation) -> str:
    lines = "\n".join(scenario.world.lines)
    return (
        f"{scenario.plan}\n{lines}\n{violation}\n"
        f"replay: .venv/bin/python -m tests.simulation.sim_run {scenario.plan.seed}"
    )


def run(seed: int, wide: bool = True) -> tuple[int, str]:
    """(operations, what was violated or nothing)."""
    scenario = Scenario(make_plan(seed, wide))
    try:
        scenario.run()
    except Violation as violation:
        return len(scenario.history.ops), explain(scenario, violation)
    return len(scenario.history.ops), ""


def run_batch(first: int) -> tuple[int, list[str]]:
    """BATCH seeds from `first` on: (operations, what was violated)."""
    found = [run(seed) for seed in range(first, first + BATCH)]
    return sum(ops for ops, _ in found), [text for _, text in found if text]


def main(first: int, count: int) -> int:
    began = time.process_time()
    events = ops = failures = 0
    for seed in range(first, first + count):
        scenario = Scenario(make_plan(seed))
        started = time.process_time()
        try:
            scenario.run()
        except Violation as violation:
            failures += 1
            text = explain(scenario, violation) if count == 1 else f"seed {seed}: {violation}"
            print(text, flush=True)
            if count == 1:
                raise
        if (took := time.process_time() - started) > SLOW_SECONDS:
            print(f"seed {seed} took {took:.1f} s, {scenario.world.events} events", flush=True)
        events += scenario.world.events
        ops += len(scenario.history.ops)
    seconds = time.process_time() - began
    print(
        f"{count} scenarios, {ops} operations, {events} events, {failures} failures, "
        f"{seconds:.1f} s, {count / seconds:.1f}/s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
