"""`python -m tests.mutants.seeds FIRST COUNT`: seeds until one violates (exit code 1)."""

from __future__ import annotations

import sys

from tests.simulation.sim_run import run
from tests.simulation.test_simulation import REGRESSIONS


def main(first: int, count: int) -> int:
    for seed in (*REGRESSIONS, *range(first, first + count)):
        _, violation = run(seed)
        if violation:
            lines = [line for line in violation.strip().splitlines() if "replay:" not in line]
            print(f"seed {seed}: {lines[-1].strip()}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
