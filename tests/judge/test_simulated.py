"""Scenarios of the simulation before the outside judge, and the same with one lease given twice.

`make judge` does so with thousands of them, and with chaos and crashes beside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.judge.judge_runs import ROOT, Line, judge, program, write

SCENARIOS = 30
FIRST = 700_000


#: Seeds that asked for a closer look, and what the history has to tell: a session that nobody
#: hears, though its client asks nodes that do not serve (403182: until it ends; 727703: a node that
#: goes alone before it serves); tasks finished in
#: a state that was saved as a whole; a refusal, and a task, of a log that was cut.
AWAY = (402880, 403182, 408296, 727703)
SAVED = (400315, 403785, 407720)
CUT = {406345: "lease lost without a cause", 406349: "one id, several tasks"}


#: Dimensions that these seeds did not have then.
LATER = "y_altered,y_done,y_dropped,y_tokens,y_truncated"
#: Runs the seeds it is given, one after the other.
RUN = """
import sys
from tests.simulation.sim_run import run
sys.exit("".join(run(int(seed))[1] for seed in sys.argv[1:]) or 0)
"""


def simulate(home: Path, seeds: Iterable[int], without: str = "") -> Path:
    program()
    env = os.environ | {"SIM_HISTORY": str(home), "SIM_WITHOUT": without}
    command = [sys.executable, "-c", RUN, *map(str, seeds)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return home


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(tmp_path_factory.mktemp("asked"), (*AWAY, *SAVED, *CUT), LATER)


def lines_of(seed: int, home: Path) -> list[Line]:
    text = (home / f"sim-{seed}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def found(lines: list[Line], home: Path) -> set[str]:
    """The word for each thing that is wrong."""
    write(home / "changed.jsonl", lines)
    return {one["what"] for run in judge(home)[2] for one in run["findings"]}


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(tmp_path_factory.mktemp("histories"), range(FIRST, FIRST + SCENARIOS))


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


def next_takes(lines: list[Line]) -> Iterator[tuple[Line, Line]]:
    """(end of a session, take of a task by another one, which that session had in hand)."""
    ops = [line for line in lines if line.get("outcome") == "ok" and line.get("task") is not None]
    ends = [line for line in lines if line.get("event") == "lease_may_end" and line["session"]]
    for end in ends:
        for take in ops:
            if take["kind"] != "take" or take.get("session") == end["session"]:
                continue
            before = [
                op
                for op in ops
                if (op["tube"], op["task"]) == (take["tube"], take["task"])
                and op["began_us"] < take["began_us"]
            ]
            if before and before[-1]["kind"] == "take" and before[-1]["session"] == end["session"]:
                yield end, take


@pytest.mark.sim
@pytest.mark.parametrize("seed", AWAY)
def test_a_session_is_away_when_no_node_that_serves_hears_it(
    seed: int, asked: Path, tmp_path: Path
) -> None:
    """And a lease that is passed on a moment too early, with the same figures, is found."""
    lines = lines_of(seed, asked)
    assert found(lines, tmp_path) == set()
    end, take = next(iter(next_takes(lines)))
    assert end["from_us"] <= take["ended_us"]
    take |= {"began_us": end["from_us"] - 2_000, "ended_us": end["from_us"] - 1_000}
    assert "held twice" in found(lines, tmp_path)


@pytest.mark.sim
@pytest.mark.parametrize("seed", SAVED)
def test_what_was_finished_in_a_saved_state_is_told_one_by_one(
    seed: int, asked: Path, tmp_path: Path
) -> None:
    """Without the line of one such finish this very task is found, and no other."""
    lines = lines_of(seed, asked)
    assert found(lines, tmp_path) == set()
    again = [(line["tube"], line["task"]) for line in lines if line.get("kind") == "ack"]
    told = next(
        line
        for line in lines
        if line.get("file") == "a saved state"
        and line["kinds"] == ["ack"]
        and again.count((line["tube"], line["task"])) == 2
    )
    lines.remove(told)
    assert "back after its end" in found(lines, tmp_path)


@pytest.mark.sim
@pytest.mark.parametrize("seed", CUT)
def test_answers_of_a_log_that_was_cut_are_told_one_by_one(
    seed: int, asked: Path, tmp_path: Path
) -> None:
    lines = lines_of(seed, asked)
    assert found(lines, tmp_path) == set()
    kept = [line for line in lines if line.get("event") != "cut"]
    assert CUT[seed] in found(kept, tmp_path)
