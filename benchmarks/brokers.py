"""Celery, Dramatiq and Taskiq on Tandem beside their usual brokers: `python -m benchmarks brokers`.

Every turn runs each pair of framework and broker anew: a server, one producer that sends a backlog,
one worker that drains it, and then a producer at a steady rate, whose tasks' waits (from before the
send to the first line of the task) are the latencies. The peers' programs are Debian's packages,
their clients go to .tools/peers: both are fetched first where that can be done, else a pair is
skipped by name. A turn that fails is told and left out; the others go on.

Here: the pairs, the order of a turn, the table. Must not be here: starting servers, applications.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import broker_servers as servers
from benchmarks.broker_servers import PeerMissing, Server, Started, package_version
from benchmarks.measure import Neighbours, environment
from benchmarks.table import update_docs

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs" / "frameworks.md"
EXIT_OK, EXIT_FAILED, EXIT_CANNOT_RUN = 0, 1, 2
DRAIN_SECONDS_MAX = 300.0
WORKERS = {
    "taskiq": ["taskiq", "worker", "benchmarks.frameworks.with_taskiq:broker", "--workers", "1"],
    "dramatiq": ["dramatiq", "benchmarks.frameworks.with_dramatiq", "--processes", "1"],
    "celery": ["celery", "-A", "benchmarks.frameworks.with_celery", "worker"],
}
WORKERS["taskiq"] += ["--max-async-tasks", "16", "--log-level", "WARNING"]
WORKERS["dramatiq"] += ["--threads", "8"]
WORKERS["celery"] += ["--concurrency", "2", "--without-gossip", "--without-mingle"]


def _redis_peer(*packages: str) -> str:
    about = [f"{name} {package_version(name)}" for name in packages]
    return f"Redis {servers.redis_version()} ({', '.join(about)}), appendfsync everysec"


def _rabbitmq_peer(more: str) -> str:
    about = f"amqp {package_version('amqp')}"
    return f"RabbitMQ {servers.rabbitmq_version()} ({about}), durable, {more}"


@dataclass(frozen=True)
class Pair:
    """A framework and a broker. `title` says versions and settings, or raises PeerMissing."""

    framework: str
    broker: str
    title: Callable[[], str]
    server: Callable[[Path], AbstractAsyncContextManager[Server]]


def _tandem() -> str:
    return f"Tandem {package_version('tandemq')}, wal.mode write"


PAIRS = (
    Pair("taskiq", "tandem", _tandem, servers.tandem),
    Pair("taskiq", "redis-stream", partial(_redis_peer, "taskiq-redis", "redis"), servers.redis),
    Pair("taskiq", "redis-list", partial(_redis_peer, "taskiq-redis", "redis"), servers.redis),
    Pair("dramatiq", "tandem", _tandem, servers.tandem),
    Pair("dramatiq", "redis", partial(_redis_peer, "redis"), servers.redis),
    Pair("celery", "tandem", _tandem, partial(servers.tandem, celery=True)),
    Pair("celery", "rabbitmq-confirmed", partial(_rabbitmq_peer, "confirmed"), servers.rabbitmq),
    Pair("celery", "rabbitmq", partial(_rabbitmq_peer, "unconfirmed"), servers.rabbitmq),
)


@dataclass
class Turn:
    """What one turn of a pair gave."""

    sent: float
    worked: float
    p50_ms: float
    p99_ms: float
    server_us: float
    worker_us: float


@dataclass
class Found:
    """A pair's turns, or why there are none."""

    pair: Pair
    title: str
    turns: list[Turn] = field(default_factory=list)
    failed: int = 0

    def median(self, name: str) -> float:
        """Over the turns."""
        return statistics.median(getattr(turn, name) for turn in self.turns)


class Notes:
    """The worker's lines: when a task was sent and begun."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def read(self) -> list[tuple[int, int]]:
        """(sent, begun) in nanoseconds of the machine's clock, as they were begun."""
        lines = self.path.read_text().splitlines()
        return [(int(sent), int(begun)) for sent, begun in (line.split() for line in lines)]

    async def reach(self, count: int, worker: Started) -> None:
        """Wait for so many. Raises RuntimeError when the worker ends or stands still."""
        limit = time.monotonic() + DRAIN_SECONDS_MAX
        while self.path.read_bytes().count(b"\n") < count:
            if worker.process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"{worker.process.args} did not work all tasks off")
            await asyncio.sleep(0.05)


async def produce(pair: Pair, given: dict[str, str], *words: str) -> dict[str, float]:
    """Run a producer to its end; its line. Raises RuntimeError with what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"benchmarks.frameworks.with_{pair.framework}",
        *words,
        cwd=ROOT,
        env=given,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{pair.framework} on {pair.broker}: {err.decode()[-1500:]}")
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return found


async def turn(pair: Pair, directory: Path, options: argparse.Namespace) -> Turn:
    """One turn. Raises RuntimeError, PeerMissing, NodeFailed."""
    directory.mkdir(parents=True)
    notes, count = Notes(directory / "notes"), options.count
    async with pair.server(directory / "server") as server:
        given = {**os.environ, "BROKER": pair.broker, "URL": server.url, "OUT": str(notes.path)}
        paths = [str(ROOT), str(servers.CLIENTS), os.environ.get("PYTHONPATH", "")]
        given["PYTHONPATH"] = os.pathsep.join(paths)
        sent = await produce(pair, given, "backlog", str(count))
        words = [sys.executable, "-m", *WORKERS[pair.framework]]
        worker = Started(words, directory / "worker.log", cwd=str(ROOT), env=given)
        try:
            # The first tenth pays for the start of the worker, and is in no figure.
            await notes.reach(count // 10, worker)
            worker_before, server_before = worker.cpu_seconds(), server.cpu_seconds()
            first = len(notes.read())
            await notes.reach(count, worker)
            spent = worker.cpu_seconds() - worker_before, server.cpu_seconds() - server_before
            begun = sorted(begun for _, begun in notes.read())
            await produce(pair, given, "paced", str(options.paced), str(options.rate))
            await notes.reach(count + options.paced, worker)
        except BaseException:
            print((directory / "worker.log").read_text(errors="replace")[-3000:], file=sys.stderr)
            raise
        finally:
            await worker.end()
    part = count - first
    if part < 2:
        raise RuntimeError("worked off before anybody looked: a larger -n is needed")
    waits = sorted((begun - sent) / 1e6 for sent, begun in notes.read()[count:])
    return Turn(
        sent["count"] / sent["wall"],
        (part - 1) / ((begun[-1] - begun[-part]) / 1e9),
        waits[len(waits) // 2],
        waits[len(waits) * 99 // 100],
        1e6 * spent[1] / part,
        1e6 * spent[0] / part,
    )


def markdown(found: list[Found], about: dict[str, object], options: argparse.Namespace) -> str:
    """The table, with where its figures come from above it."""
    versions = ", ".join(f"{n} {package_version(n)}" for n in ("taskiq", "dramatiq", "celery"))
    lines = [
        f"`python -m benchmarks brokers --runs {options.runs} -n {options.count}`, commit "
        f"{about['commit']}, {about['time']} UTC, Python {about['python']}, {about['cores']} cores "
        f"({about['cpu']}), Linux {about['kernel']}; {versions}; medians of {options.runs} turns; "
        f"other programs took {about['others']:.0%} of the machine meanwhile.",
        "",
        "| Framework | Broker | sent/s | tasks/s | p50 ms | p99 ms | broker us/task "
        "| worker us/task |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for one in found:
        start = f"| {one.pair.framework} | {one.pair.broker}: {one.title}"
        start += f"; {one.failed} turns failed |" if one.failed else " |"
        if not one.turns:
            lines.append(f"{start} | | | | | |")
            continue
        whole = (f"{one.median(name):,.0f}" for name in ("sent", "worked"))
        waits = (f"{one.median(name):.1f}" for name in ("p50_ms", "p99_ms"))
        costs = (f"{one.median(name):,.0f}" for name in ("server_us", "worker_us"))
        lines.append(f"{start} {' | '.join([*whole, *waits, *costs])} |")
    return "\n".join(lines) + "\n"


async def measure(options: argparse.Namespace, directory: Path) -> list[Found]:
    """All turns of all pairs that can be run, in turns."""
    found = []
    for pair in PAIRS:
        if pair.framework not in options.frameworks:
            continue
        try:
            found.append(Found(pair, pair.title()))
        except PeerMissing as error:
            print(f"skipped: {pair.framework} on {pair.broker}: {error}", file=sys.stderr)
            found.append(Found(pair, f"not measured: {error}"))
    for number in range(options.runs):
        for one in found:
            if one.title.startswith("not measured"):
                continue
            what = f"{one.pair.framework} on {one.pair.broker}"
            place = directory / f"{one.pair.framework}-{one.pair.broker}-{number}"
            try:
                one.turns.append(await turn(one.pair, place, options))
                print(f"{what}: {one.turns[-1]}", file=sys.stderr)
            except (PeerMissing, OSError, RuntimeError) as error:
                one.failed += 1
                print(f"failed: {what}: {error}", file=sys.stderr)
    return found


def parse(argv: list[str]) -> argparse.Namespace:
    """The options of a run."""
    parser = argparse.ArgumentParser(prog="benchmarks brokers", description=__doc__.splitlines()[0])
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help=", ".join(WORKERS))
    parser.add_argument("--runs", type=int, default=3, help="turns (medians; 3)")
    parser.add_argument("-n", "--count", type=int, default=3_000, help="tasks of a backlog")
    parser.add_argument("--paced", type=int, default=1_000, help="tasks at a steady rate")
    parser.add_argument("--rate", type=float, default=100.0, help="of them a second")
    parser.add_argument("--dir", type=Path, help="where servers keep data (default: temporary)")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/frameworks.md")
    options = parser.parse_args(argv)
    if unknown := set(options.frameworks) - set(WORKERS):
        parser.error(f"unknown framework {unknown.pop()!r}: choose from {', '.join(WORKERS)}")
    options.frameworks = options.frameworks or list(WORKERS)
    return options


def main(argv: list[str]) -> int:
    """Run and print; 1 when a turn failed, 2 when nothing could be run."""
    options = parse(argv)
    servers.fetch(lambda text: print(text, file=sys.stderr))
    about, neighbours = environment(), Neighbours()
    try:
        with tempfile.TemporaryDirectory(prefix="tandem-bench-", dir=options.dir) as name:
            found = asyncio.run(measure(options, Path(name)))
    except (PeerMissing, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CANNOT_RUN
    table = markdown(found, {**about, "others": neighbours.share()}, options)
    print(table)
    if options.docs:
        update_docs(DOCS, "brokers", table)
    return EXIT_FAILED if any(one.failed for one in found) else EXIT_OK
