"""`seeds.py FIRST COUNT`: simulated scenarios until one shows a violation (exit code 1)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "simulation"))

from sim_run import run
from test_simulation import REGRESSIONS


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
