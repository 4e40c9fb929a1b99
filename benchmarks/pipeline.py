"""Speed of the Spark pipeline, part by part: `python -m benchmarks pipeline jobs --docs`.

Logs are written by the real engine. Figures are medians of `--runs` unless a row says `cold`: the
first of that kind in a session, which pays for compiling. Yardsticks run in the same run, over the
same bytes. Goals are those of two cores; goals of 5 million operations are judged there only.

Here: options, the logs, the order of parts. Must not be here: measuring.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.logmaker import LogMaker, fill
from benchmarks.measure import Neighbours, environment
from benchmarks.table import Row, all_met, at_most, draw, markdown, save, update_docs

PARTS = ("decode", "read", "stream", "live", "sink", "jobs", "linear", "engines", "alone")
FULL = 5_000_000
MEMORY_MAX_GIB = 4.0
EXIT_OK, EXIT_MISSED, EXIT_CANNOT_RUN = 0, 1, 2
SEGMENT_BYTES = 32 << 20
DOCS = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def section(part: str) -> str:
    """Name of a part's table in docs/benchmarks.md."""
    return f"pipeline, {part}"


PAGE = os.sysconf("SC_PAGE_SIZE")


class Peak:
    """Most memory this process and all below it had at once, looked at every second or two."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = 0.5
        while not self._over.wait(pause):
            began = time.perf_counter()
            self.bytes = max(self.bytes, _resident(os.getpid()))
            # A look costs what is measured some time, too.
            pause = max(0.5, 20 * (time.perf_counter() - began))

    @property
    def gib(self) -> float:
        return self.bytes / (1 << 30)


def _resident(root: int) -> int:
    """Memory of a process and its children: a JVM's own, and of the others, forked workers that
    share most of theirs, each one's part. A JVM's part would take the kernel a tenth of a second,
    in which the JVM gets no memory.
    """
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    own = {root}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    total = 0
    for pid in own:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "java\n":
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
                continue
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
    return total


@dataclass(slots=True)
class Bench:
    """What every part gets: how much, where, and a place for rows and samples."""

    operations: int
    runs: int
    home: Path
    logs: Path
    say: Callable[[str], None]
    rows: list[Row] = field(default_factory=list)
    samples: dict[str, Any] = field(default_factory=dict)

    def log(self, operations: int) -> str:
        """A log of about so many operations, in two terms; made where it is not there yet."""
        home = self.logs / f"log-{operations}"
        if not home.exists():
            self.say(f"writing a log of {operations:,} operations")
            aside = self.logs / f"log-{operations}.new-{os.getpid()}"
            maker = LogMaker(aside, segment_bytes=SEGMENT_BYTES)
            maker.open_term()
            fill(maker, operations, per_turn=384)
            maker.turn()
            # What is sealed can be compacted: a second term seals all of the first.
            maker.open_term(2)
            maker.close()
            aside.rename(home)
        return str(home)

    def archive(self, spark: Any, operations: int) -> str:
        """The compacted log of so many operations."""
        from tandemq.pipeline import compact

        home = self.logs / f"archive-{operations}"
        if not home.exists():
            compact.run(spark, [self.log(operations)], str(home))
        return str(home)

    @contextlib.contextmanager
    def spark(self, master: str = "local[2]", lean: bool = False) -> Iterator[Any]:
        """A session of its own, whose JVM has ended afterwards; memory goes into the rows.

        lean: as the commands of jobs through whose JVM no rows go.
        """
        from tandemq.pipeline.cli import plain
        from tandemq.pipeline.session import build_session

        self.say("starting Spark")
        started = time.perf_counter()
        session = build_session(master, "benchmark", lean=lean)
        took = time.perf_counter() - started
        try:
            with Peak() as peak:
                yield session
        except Exception as error:
            # Asked for its text now: it lives in the JVM, which ends below.
            raise RuntimeError(f"{plain(error)}: {str(error)[:600]}") from None
        finally:
            context = type(session.sparkContext)
            gateway = context._gateway
            session.stop()
            # Else the next session would look for this one's JVM.
            context._gateway = context._jvm = None
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(60)
        self.samples["session_s"], self.samples["peak_gib"] = took, peak.gib
        goal = at_most(peak.gib, MEMORY_MAX_GIB, " GiB")
        figures = f"{took:.1f} s, {peak.gib:.2f} GiB"
        self.rows.append(Row("spark", "start; most memory of all processes", figures))
        self.rows[-1].goals = [goal] if self.operations >= FULL else []


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks pipeline", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--operations", type=int, default=300_000, help="of the log (300,000)")
    parser.add_argument("--full", action="store_true", help="5 million operations")
    parser.add_argument("--runs", type=int, default=3, help="runs a figure (median; 3)")
    parser.add_argument("--logs", type=Path, help="keep logs and archives here for the next run")
    parser.add_argument("--docs", action="store_true", help="put each table into the docs")
    parser.add_argument("--strict", action="store_true", help="exit code 1 when a goal is missed")
    options = parser.parse_args(argv)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"unknown part {part!r}: choose from {', '.join(PARTS)}")
    if options.operations < 1000 or options.runs < 1:
        parser.error("at least 1000 operations and one run")
    if options.full:
        options.operations = FULL
    return options


def run_part(part: str, bench: Bench) -> None:
    """Measure one part; rows and samples go into `bench`."""
    from benchmarks import (
        pipeline_alone,
        pipeline_engines,
        pipeline_jobs,
        pipeline_read,
        pipeline_stream,
    )

    work: dict[str, Callable[[Bench], None]] = {
        "decode": pipeline_read.decode,
        "read": pipeline_read.read,
        "stream": pipeline_stream.stream,
        "live": pipeline_stream.live,
        "sink": pipeline_stream.sink,
        "jobs": pipeline_jobs.jobs,
        "linear": pipeline_jobs.linear,
        "engines": pipeline_engines.engines,
        "alone": pipeline_alone.alone,
    }
    work[part](bench)


def main(argv: list[str]) -> int:
    """Run the parts, a table each; 0, 1 with --strict and a missed goal, 2 when it cannot run."""
    from rich.console import Console

    options = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 150)
    started = time.monotonic()
    about: dict[str, object] = {"options": {k: str(v) for k, v in vars(options).items()}}
    rows: list[Row] = []
    raw: dict[str, object] = {}

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        logs = options.logs or Path(name) / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for part in dict.fromkeys(options.parts or PARTS):
            say(f"pipeline, {part}")
            home = Path(name) / part
            home.mkdir()
            bench = Bench(options.operations, options.runs, home, logs, say)
            neighbours, here = Neighbours(), environment()
            try:
                run_part(part, bench)
            except (RuntimeError, OSError, ImportError) as error:
                print(f"error: {part}: {error}", file=sys.stderr)
                return EXIT_CANNOT_RUN
            here["others"] = neighbours.share()
            about = {**here, **about}
            rows += bench.rows
            raw[part] = bench.samples
            draw(console, bench.rows)
            if options.docs:
                update_docs(DOCS, section(part), markdown(bench.rows, here))
    say(f"kept in {save(rows, about, raw)}")
    return EXIT_MISSED if options.strict and not all_met(rows) else EXIT_OK
