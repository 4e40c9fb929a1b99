"""`python3 -m tests.runs FOLDER`: newcomer, developer and operator, one after the other.

Only the standard library: there is no environment before the newcomer made one. The operator's
browser is driven by a program of its own, in the clone's environment.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.runs.steps import Steps

HERE = Path(__file__).resolve().parents[2]
OWN = """
def handle(task):
    print("handled", task.data, flush=True)
"""
FAILING = """
def handle(task):
    raise ValueError("no such address: " + task.data)
"""


def newcomer(folder: Path) -> None:
    """From nothing to a worker that processes a function of one's own."""
    title = "newcomer: from a clone to a worker with a function of one's own"
    with Steps(folder, title) as steps:
        _first_worker(steps, folder)


def _first_worker(steps: Steps, folder: Path) -> None:
    with steps.step("git clone"):
        subprocess.run(["git", "clone", "--quiet", str(HERE), str(folder)], check=True)
    with steps.step("make setup (downloads packages)"):
        steps.run("make setup")
    with steps.step("make cluster, until both nodes are told"):
        steps.cluster()
    with steps.step("tandemq create letters fifottl"):
        steps.run("tandemq create letters fifottl")
    with steps.step("own.py, tandemq work own:handle, tandemq put: until it is handled"):
        (folder / "own.py").write_text(OWN)
        steps.start("tandemq work own:handle --tube letters", "worker.log")
        steps.run('tandemq put letters "Dear Ann"')
        steps.until(lambda: "handled Dear Ann" in steps.said("worker.log"), "not handled")
    steps.total("in all")


def developer(folder: Path) -> None:
    """A function that fails is understood and mended; the example of a team passes its tests."""
    with Steps(folder, "developer: a function that fails, until it is understood") as steps:
        _failing(steps, folder)
    with Steps(folder, "developer: tests") as steps:
        _tests(steps, folder)


def _failing(steps: Steps, folder: Path) -> None:
    with steps.step("make cluster"):
        steps.cluster()
    with steps.step("a function that fails: until its traceback is in the worker's log"):
        (folder / "own.py").write_text(FAILING)
        steps.run("tandemq create letters fifottl && tandemq put letters Ann")
        worker = steps.start("tandemq work own:handle --tube letters", "worker.log")
        steps.until(lambda: "no such address: Ann" in steps.said("worker.log"), "no traceback")
    with steps.step("tandemq info letters 0 says how to see why: tandemq alter"):
        assert "tandemq alter letters max_attempts=5" in steps.run("tandemq info letters 0")
        steps.run("tandemq alter letters max_attempts=50")
    with steps.step("tandemq info, until the next failure is there with its reason"):
        told = "no such address: Ann"
        steps.until(lambda: told in steps.run("tandemq info letters 0"), "no reason")
    with steps.step("the function mended, the worker started again, until it is handled"):
        worker.terminate()
        worker.wait(60)
        (folder / "own.py").write_text(OWN)
        steps.start("tandemq work own:handle --tube letters", "worker.log")
        steps.until(lambda: "handled Ann" in steps.said("worker.log"), "not handled")
    with steps.step("tandemq history: what happened to it"):
        where = re.search(r"a: .* data (\S+)", steps.said("cluster.log"))
        assert where is not None
        assert "ack" in steps.run(f"tandemq history {where[1]} letters 0")
    steps.total("in all")


def _tests(steps: Steps, folder: Path) -> None:
    with steps.step("make .venv/.test (downloads what tests need)"):
        steps.run("make .venv/.test")
    shop = folder / "examples" / "shop"
    with steps.step("the example's tests, examples/shop"):
        steps.run("python -m pytest -q -c /dev/null --rootdir . test_shop.py", shop)
    with steps.step("mypy --strict of it"):
        steps.run("mypy --strict --config-file= --cache-dir /dev/null shop.py test_shop.py", shop)
    with steps.step("one test of the project: make unit T=tests/engine/test_attempts.py"):
        steps.run("make unit T=tests/engine/test_attempts.py")


def operator(folder: Path) -> None:
    """The master is killed, nobody else may decide: by the console, and by the shell."""
    for way in ("console", "shell"):
        with Steps(folder, f"operator, by the {way}: no node serves, until one does") as steps:
            with steps.step("make cluster, without an arbiter; a tube"):
                steps.cluster("--no-witness")
                steps.run("tandemq create letters fifottl && tandemq put letters Ann")
            found = re.search(r"a: .* pid (\d+)", steps.said("cluster.log"))
            assert found is not None
            if way == "console":
                print(steps.run(f"python -m tests.runs.promote {found[1]}"))
            else:
                subprocess.run(["kill", "-9", found[1]], check=True)
                _by_shell(steps)


def _by_shell(steps: Steps) -> None:
    both, admin = "--server 127.0.0.1:3301,127.0.0.1:3302", "--admin 127.0.0.1:8082"
    with steps.step("tandemq put says that no node serves"):
        assert "no node" in steps.run(f"tandemq put letters Bob {both}", fine=(1, 3))
    with steps.step("tandemq role rw says what it may lose, and the command that does it"):
        said = steps.run(f"tandemq role rw {admin}", fine=(1,))
        command = re.search(r"tandemq role rw --force --at-lsn \d+", said)
        assert command is not None, said
    with steps.step("that command, and a put that is accepted"):
        steps.run(f"{command[0]} {admin}")
        steps.run(f"tandemq put letters Bob {both}")
    steps.total("in all, from the start of the cluster")


RUNS: dict[str, Callable[[Path], None]] = {
    "newcomer": newcomer,
    "developer": developer,
    "operator": operator,
}


def main(argv: list[str]) -> int:
    """All of them, or those named; the first one makes the folder."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.runs", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", nargs="*", choices=[[], *RUNS])
    options = parser.parse_args(argv)
    folder = options.folder.resolve()
    wanted = options.runs or list(RUNS)
    for name in wanted:
        RUNS[name](folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
