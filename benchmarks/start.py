"""How long a command and a node take to begin: help, put, and start to ready; CPU and wall.

    python -m benchmarks.start --runs 7
    python -m benchmarks.start --before ../older-checkout   # both, in turns

Each figure is the median of all runs, the least behind it: what other programs do to a run only
makes it longer. Every run is a process of its own, with byte code that is there already. `--before`
is another checkout of this repository, run by this one's interpreter.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from demo.node_process import NodeProcess

HERE = Path(__file__).resolve().parents[1]
COMMAND = """
import sys
sys.argv[0] = "tandemq"
try:
    from tandemq.command import HOMES
    from tandemq.command import main
except ImportError:  # an older one looks for the server in what is installed
    from tandemq_server.cli import main
sys.exit(main())
"""
WHAT = ("tandemq --help", "tandemq put", "tandemq serve, start to ready")
Figures = dict[str, tuple[float, float]]


def command(root: Path, words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The words to run, and their environment: the rooms of that checkout come first."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{root}/client", f"{root}/src"])}
    environment["PYTHONDONTWRITEBYTECODE"] = ""  # to Python as if it were not set
    return [sys.executable, "-c", COMMAND, *words], environment


def ended(root: Path, words: list[str]) -> tuple[float, float]:
    """(CPU, wall) seconds of a command."""
    run, environment = command(root, words)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(run, env=environment, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall


@contextmanager
def node(root: Path) -> Iterator[tuple[str, tuple[float, float]]]:
    """A node: where it listens, and (CPU, wall) seconds until it said so."""
    with tempfile.TemporaryDirectory(prefix="tandem-start-") as directory:
        run, environment = command(root, [])
        words = ["--listen", "127.0.0.1:0", "--data-dir", f"{directory}/data", "--guest", "all"]
        made = NodeProcess(Path(directory, "node.log"), *words, command=run, env=environment)
        began = time.perf_counter()
        with made.start() as started:
            wall = time.perf_counter() - began
            assert started.process is not None
            yield started.address, (_cpu(started.process.pid), wall)


def _cpu(pid: int) -> float:
    """Of all its threads; finer than the ticks of `stat`."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def once(root: Path) -> Figures:
    """All figures of a checkout, measured once."""
    found = {WHAT[0]: ended(root, ["--help"])}
    with node(root) as (address, ready):
        ended(root, ["create", "jobs", "fifo", "--server", address])
        found[WHAT[1]] = ended(root, ["put", "jobs", "x", "--server", address])
    found[WHAT[2]] = ready
    return found


def cell(figures: list[tuple[float, float]], at: int) -> str:
    """The median, and the least: "0.31 s (0.29)"."""
    values = [one[at] for one in figures]
    return f"{median(values):.2f} s ({min(values):.2f})"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--before", type=Path, help="another checkout, measured in turns")
    options = parser.parse_args(argv)
    roots = {"now": HERE}
    if options.before is not None:
        roots = {"before": options.before.resolve(), **roots}
    found: dict[str, dict[str, list[tuple[float, float]]]]
    found = {name: {what: [] for what in WHAT} for name in roots}
    for number in range(options.runs + 1):
        for name, root in roots.items():
            for what, figures in once(root).items():
                if number:  # the first one may have compiled
                    found[name][what].append(figures)
    print("| | " + " | ".join(f"{name}, CPU | wall" for name in roots) + " |")
    print("|---|" + "--:|--:|" * len(roots))
    for what in WHAT:
        cells = (cell(found[name][what], at) for name in roots for at in (0, 1))
        print(f"| {what} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
