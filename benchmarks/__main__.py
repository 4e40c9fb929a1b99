"""`python -m benchmarks`, or `make bench`: run the sections, print one table, keep it as JSON.

Here: options and the order of sections. Must not be here: measuring.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop
from asynctnt.exceptions import TarantoolError
from rich.console import Console

from benchmarks import failover, inprocess, memory, replication, wire, xqueue
from benchmarks.beanstalk import YardstickMissing
from benchmarks.load import Shape
from benchmarks.measure import Neighbours, environment
from benchmarks.table import Row, all_met, draw, markdown, save, update_docs
from benchmarks.target import Effort
from demo.node_process import NodeFailed

SECTIONS = ("wire", "inprocess", "memory", "replication", "failover", "xqueue")
EXIT_OK, EXIT_MISSED, EXIT_CANNOT_RUN, EXIT_INTERRUPTED = 0, 1, 2, 130
CAUSES = (YardstickMissing, NodeFailed, TarantoolError, OSError, RuntimeError)
DOCS = Path(__file__).parent.parent / "docs" / "benchmarks.md"
_WIDTH_WITHOUT_TERMINAL = 150


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 up")
    return value


def parse(argv: list[str]) -> argparse.Namespace:
    """The options of a run."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--full", action="store_true", help="every driver with a million tasks")
    parser.add_argument("--runs", type=_positive, default=3, help="runs a figure (median; 3)")
    parser.add_argument("-n", "--count", type=_positive, default=50_000, help="tasks a run")
    parser.add_argument("--connections", type=_positive, default=4)
    parser.add_argument("--in-flight", type=_positive, default=64, help="requests a connection")
    parser.add_argument("--payload", type=_positive, default=100, help="bytes a task")
    parser.add_argument("--dir", type=Path, help="where servers keep data (default: temporary)")
    parser.add_argument(
        "--docs", action="store_true", help="put each table into docs/benchmarks.md"
    )
    parser.add_argument("--strict", action="store_true", help="exit code 1 when a goal is missed")
    options = parser.parse_args(argv)
    for section in options.sections:
        if section not in SECTIONS:
            parser.error(f"unknown section {section!r}: choose from {', '.join(SECTIONS)}")
    return options


class Progress:
    """One line a step on standard error, with the seconds so far."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        seconds = time.monotonic() - self._started
        self._console.print(f"{seconds:6.0f} s  {text}", highlight=False, soft_wrap=True)


@dataclass(slots=True)
class Result:
    """What a section gave: its rows, and `about` with its own time and neighbours."""

    rows: list[Row]
    about: dict[str, object]


async def measure(
    options: argparse.Namespace, directory: Path, say: Progress
) -> tuple[dict[str, Result], dict[str, object]]:
    """Run the chosen sections one after the other; results and samples by section."""
    shape = Shape(in_flight=options.in_flight, payload_bytes=options.payload)
    effort = Effort(options.runs, options.count, options.connections, options.full, shape)
    results: dict[str, Result] = {}
    raw: dict[str, object] = {}
    for section in dict.fromkeys(options.sections or SECTIONS):
        about, neighbours = environment(), Neighbours()
        if section == "wire":
            rows, raw[section] = await wire.run(directory, effort, say)
        elif section == "memory":
            rows, raw[section] = await memory.run(directory, effort, say)
        elif section == "replication":
            rows, raw[section] = await replication.run(directory, effort, say)
        elif section == "failover":
            rows, raw[section] = await failover.run(directory, effort, say)
        elif section == "xqueue":
            rows, raw[section] = await xqueue.run(directory, effort, say)
        else:
            rows, raw[section] = await asyncio.to_thread(inprocess.run, effort, say)
        results[section] = Result(rows, {**about, "others": neighbours.share()})
    return results, raw


def _first(error: BaseException) -> BaseException:
    """The first cause in a group of them; with many requests in flight all failed alike."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def main(argv: list[str]) -> int:
    """Run and print; 0, or 1 with --strict and a missed goal, or 2 when it cannot be run."""
    if argv[:1] == ["pipeline"]:  # Spark's: options and tables of its own
        from benchmarks.pipeline import main as pipeline

        return pipeline(argv[1:])
    if argv[:1] == ["brokers"]:  # the frameworks': likewise
        from benchmarks.brokers import main as brokers

        return brokers(argv[1:])
    if argv[:1] == ["peers"]:  # what people weigh it against
        from benchmarks.peers import main as peers

        return peers(argv[1:])
    options = parse(argv)
    errors = Console(stderr=True)
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_WITHOUT_TERMINAL)
    say = Progress(errors)
    about = {**environment(), "options": {k: str(v) for k, v in vars(options).items()}}
    try:
        with tempfile.TemporaryDirectory(prefix="tandem-bench-", dir=options.dir) as name:
            results, raw = uvloop.run(measure(options, Path(name), say))
    except (*CAUSES, ExceptionGroup) as error:
        errors.print(f"error: {_first(error)}", highlight=False, markup=False, soft_wrap=True)
        return EXIT_CANNOT_RUN
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    rows = [row for result in results.values() for row in result.rows]
    draw(console, rows)
    about["others"] = {section: result.about["others"] for section, result in results.items()}
    for section, result in results.items():
        others = f"{section}: other programs took {result.about['others']:.0%} of the machine"
        console.print(others, highlight=False)
        if options.docs:
            update_docs(DOCS, section, markdown(result.rows, result.about))
    say(f"kept in {save(rows, about, raw)}")
    return EXIT_MISSED if options.strict and not all_met(rows) else EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
