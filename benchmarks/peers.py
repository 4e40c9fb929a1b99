"""Tandem and what people weigh it against, under one shape of load: `python -m benchmarks peers`.

Every turn runs each peer anew, in an order that changes: N puts of 100 bytes, then N tasks taken
and acknowledged one by one, 4 connections with 64 requests in flight on each (PostgreSQL: 16, with
one on each). What is missing is fetched where that can be done (Debian's packages, clients from
PyPI, which are in no lock file); what is not there then is skipped by name.

Here: the peers, the order, the table. Must not be here: starting servers, sending.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import uvloop

from benchmarks import peer_loads as loads
from benchmarks import peer_servers as servers
from benchmarks.beanstalk import Beanstalkd
from benchmarks.broker_servers import (
    PeerMissing,
    Server,
    fetch,
    package_version,
    rabbitmq,
    rabbitmq_version,
    redis,
    redis_version,
)
from benchmarks.measure import Neighbours, Sample, Stopwatch, environment
from benchmarks.table import update_docs
from benchmarks.target import Effort
from demo.nodes import AsyncNodeProcess

DOCS = Path(__file__).resolve().parents[1] / "docs" / "comparison.md"
EXIT_OK, EXIT_CANNOT_RUN = 0, 2
PHASES = ("put", "take+ack")
PACKAGES = {
    "redis": "redis==8.1.0",
    "hiredis": "hiredis==3.5.0",
    "nats": "nats-py==2.16.0",
    "asyncpg": "asyncpg==0.32.0",
    "aio_pika": "aio-pika==10.2.1",
    "aiormq": "aiormq==7.2.4",
    "pamqp": "pamqp==4.0.1",
}
PROGRAMS = {
    "beanstalkd": "beanstalkd",
    "redis-server": "redis-server",
    "nats-server": "nats-server",
    "rabbitmq-server": "rabbitmq-server",
    "pg_lsclusters": "postgresql",
    "tarantool": "tarantool",
}


@dataclass(frozen=True)
class Peer:
    """`title` says version and settings; it and the others raise PeerMissing. synced: a put is
    answered when it is on the disk; else when it would survive the end of the process.
    """

    name: str
    synced: bool
    title: Callable[[], str]
    server: Callable[[Path], AbstractAsyncContextManager[Server]]
    load: Callable[[str, Effort], AbstractAsyncContextManager[loads.Load]]


@dataclass
class Found:
    """A peer's samples by phase, or none and why."""

    peer: Peer
    title: str
    missing: str = ""
    samples: dict[str, list[Sample]] = field(default_factory=lambda: {one: [] for one in PHASES})

    def median(self, phase: str, name: str) -> float:
        """Over the turns."""
        return statistics.median(getattr(sample, name) for sample in self.samples[phase])


def peers(queue: Path | None) -> tuple[Peer, ...]:
    """All of them. queue: a checkout of Tarantool's queue module."""
    ours = partial(loads.iproto, creates=True)
    return (
        Peer("Tandem", False, partial(_tandem, "write"), _node("write"), ours),
        Peer("Tandem, synced", True, partial(_tandem, "fsync"), _node("fsync"), ours),
        Peer(
            "Tarantool + queue",
            False,
            _tarantool,
            partial(servers.tarantool, queue=queue),
            loads.iproto,
        ),
        Peer("beanstalkd", False, _beanstalkd, _beanstalkd_server, loads.beanstalkd),
        Peer(
            "Redis streams",
            False,
            lambda: f"{redis_version()}, appendfsync everysec",
            partial(redis, fsync="everysec"),
            loads.redis,
        ),
        Peer(
            "Redis streams, synced",
            True,
            lambda: f"{redis_version()}, appendfsync always",
            partial(redis, fsync="always"),
            loads.redis,
        ),
        Peer("NATS JetStream", False, _nats, servers.nats, loads.nats),
        Peer(
            "PostgreSQL",
            False,
            partial(_postgres, "off"),
            partial(servers.postgres, synchronous="off"),
            loads.postgres,
        ),
        Peer(
            "PostgreSQL, synced",
            True,
            partial(_postgres, "on"),
            partial(servers.postgres, synchronous="on"),
            loads.postgres,
        ),
        Peer(
            "RabbitMQ classic",
            False,
            lambda: f"{rabbitmq_version()}, durable, confirmed, pushed",
            rabbitmq,
            partial(loads.rabbitmq, kind="classic"),
        ),
        Peer(
            "RabbitMQ quorum, synced",
            True,
            lambda: f"{rabbitmq_version()}, one member, confirmed, pushed",
            rabbitmq,
            partial(loads.rabbitmq, kind="quorum"),
        ),
    )


def _tandem(mode: str) -> str:
    return f"{package_version('tandemq')}, wal.mode {mode}"


def _node(mode: str) -> Callable[[Path], AbstractAsyncContextManager[Server]]:
    @asynccontextmanager
    async def node(directory: Path) -> AsyncIterator[Server]:
        async with AsyncNodeProcess(directory, wal_mode=mode) as process:
            yield Server(f"127.0.0.1:{process.port}", process.cpu_seconds)

    return node


def _tarantool() -> str:
    version = servers.said_version([servers.program("tarantool", "tarantool"), "--version"])
    return f"{version}, wal_mode write"


def _nats() -> str:
    version = servers.said_version([servers.program("nats-server", "nats-server"), "--version"])
    return f"{version}, file storage, synced every 2 min"


def _postgres(synchronous: str) -> str:
    version = servers.said_version([servers.postgres_program("postgres"), "--version"])
    return f"{version}, SKIP LOCKED, synchronous_commit {synchronous}"


def _beanstalkd() -> str:
    version = servers.said_version([servers.program("beanstalkd", "beanstalkd"), "-v"])
    return f"{version}, binlog, synced every 50 ms"


@asynccontextmanager
async def _beanstalkd_server(directory: Path) -> AsyncIterator[Server]:
    async with Beanstalkd(servers.program("beanstalkd", "beanstalkd"), directory) as server:
        yield Server(f"127.0.0.1:{server.port}", server.cpu_seconds)


async def turn(found: Found, directory: Path, effort: Effort) -> None:
    """Put, then take and ack. Raises PeerMissing, OSError and what clients raise."""
    async with found.peer.server(directory) as server, found.peer.load(server.url, effort) as load:
        for phase, piece in zip(PHASES, (load.put, load.take_ack), strict=True):
            watch = Stopwatch(server.cpu_seconds)
            found.samples[phase].append(watch.stop(await piece(effort.count)))


async def measure(
    chosen: list[Peer], directory: Path, effort: Effort, say: Callable[[str], None]
) -> list[Found]:
    """All turns, each peer's one after the other's, in an order that changes."""
    found = []
    for peer in chosen:
        try:
            found.append(Found(peer, peer.title()))
        except PeerMissing as error:
            found.append(Found(peer, "", str(error)))
    for number in range(effort.runs):
        for one in found if number % 2 else reversed(found):
            if one.missing:
                continue
            say(f"turn {number + 1} of {effort.runs}: {one.peer.name}")
            try:
                place = directory / one.peer.name.replace(" ", "").replace(",", "-")
                await turn(one, place.with_name(f"{place.name}-{number}"), effort)
            except PeerMissing as error:
                one.missing = str(error)
    for one in found:
        if one.missing:
            say(f"skipped: {one.peer.name}: {one.missing}")
    return found


def markdown(found: list[Found], about: dict[str, object], effort: Effort) -> str:
    """The table, with where its figures come from above it; fewest CPU for a put first."""
    lines = [
        f"`python -m benchmarks peers --runs {effort.runs} -n {effort.count}`, commit "
        f"{about['commit']}, {about['time']} UTC, Python {about['python']}, {about['cores']} cores "
        f"({about['cpu']}), Linux {about['kernel']}; medians of {effort.runs} turns; others "
        f"took {about['others']:.0%} of the machine meanwhile.",
        "",
        "| | version and setting | put/s | server us | client us | take+ack, operations/s "
        "| server us | client us |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    there = sorted(
        (one for one in found if not one.missing),
        key=lambda one: (one.peer.synced, one.median("put", "server_us")),
    )
    for one in there:
        cells = [one.peer.name, one.title]
        for phase in PHASES:
            cells += [
                f"{one.median(phase, 'rate'):,.0f}",
                f"{one.median(phase, 'server_us'):.1f}",
                f"{one.median(phase, 'client_us'):.1f}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        f"| {one.peer.name} | not measured: {one.missing} | | | | | | |"
        for one in found
        if one.missing
    ]
    return "\n".join(lines) + "\n"


def parse(argv: list[str]) -> argparse.Namespace:
    """The options of a run."""
    parser = argparse.ArgumentParser(prog="benchmarks peers", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="PEER", help="beginnings of names; all")
    parser.add_argument("--runs", type=int, default=3, help="turns (medians; 3)")
    parser.add_argument("-n", "--count", type=int, default=20_000, help="tasks a turn")
    parser.add_argument("--queue", type=Path, help="a checkout of github.com/tarantool/queue")
    parser.add_argument("--dir", type=Path, help="where servers keep data (default: temporary)")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/comparison.md")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run and print; 2 when nothing could be run."""
    options = parse(argv)
    fetch(_say, PACKAGES, PROGRAMS)
    words = [name.lower() for name in options.names]
    chosen = [
        peer
        for peer in peers(options.queue)
        if not words or any(peer.name.lower().startswith(word) for word in words)
    ]
    about, neighbours = environment(), Neighbours()
    effort = Effort(options.runs, options.count)
    with tempfile.TemporaryDirectory(prefix="tandem-peers-", dir=options.dir) as name:
        # Servers that are not root's must get to their folders.
        Path(name).chmod(0o711)
        found = uvloop.run(measure(chosen, Path(name), effort, _say))
    if all(one.missing for one in found):
        return EXIT_CANNOT_RUN
    table = markdown(found, {**about, "others": neighbours.share()}, effort)
    print(table)
    if options.docs:
        update_docs(DOCS, "peers", table)
    return EXIT_OK


def _say(text: str) -> None:
    print(text, file=sys.stderr)
