"""Scenarios of the simulation before the outside judge, and the same with one lease given twice.

`make judge` does so with thousands of them, and with chaos and crashes beside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.judge.judge_runs import ROOT, judge, program

SCENARIOS = 30
FIRST = 700_000


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program()
    home = tmp_path_factory.mktemp("histories")
    env = os.environ | {"SIM_HISTORY": str(home)}
    command = [sys.executable, "-m", "tests.simulation.sim_run", str(FIRST), str(SCENARIOS)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return home


@pytest.mark.sim
@pytest.mark.timeout(700)
def test_simulated_clusters_give_answers_that_a_queue_can_give(
    histories: Path, tell: Callable[[str], None]
) -> None:
    code, totals, runs = judge(histories)
    assert (code, runs) == (0, []), runs[:1]
    assert totals["runs"] == SCENARIOS
    assert totals["operations"] > 150 * SCENARIOS
    assert totals["undecided"] == 0
    counted, seconds = totals["operations"], totals["seconds"]
    tell(f"judge: {counted} operations of {SCENARIOS} scenarios, {seconds:.1f} s")


@pytest.mark.sim
@pytest.mark.timeout(700)
def test_one_lease_given_twice_among_them_is_found(histories: Path, tmp_path: Path) -> None:
    """A take that ends in an ack, and in between somebody else takes it, too."""
    planted = 0
    for path in sorted(histories.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if any(line.get("event") in ("forced", "undone", "untold") for line in lines):
            continue
        held = {}
        for line in lines:
            if line.get("outcome") != "ok" or line.get("task") is None:
                continue
            task = (line["tube"], line["task"])
            if line["kind"] == "take" and "lease_until_us" not in line:
                held[task] = line
            elif (
                line["kind"] == "ack"
                and task in held
                and line["began_us"] > held[task]["ended_us"] + 10
            ):
                thief = held[task] | {"client": "thief", "session": "thief"}
                moment = held[task]["ended_us"]
                lines.append(thief | {"began_us": moment + 1, "ended_us": moment + 2})
                planted += 1
                break
            else:
                held.pop(task, None)
        else:
            continue
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    code, totals, runs = judge(tmp_path)
    assert planted >= 3
    assert (code, len(runs), totals["runs"]) == (1, planted, planted)
    assert all(any(one["what"] == "held twice" for one in run["findings"]) for run in runs)
