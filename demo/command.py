"""The demonstration from end to end: read URLs, start nodes, run the crowd, give the verdict.

Here: options and the order of steps. Must not be here: judging (verdict.py), calls (crowd.py).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvloop
from rich.console import Console

from demo.crowd import UNKNOWN_ERRORS, Crowd, Plan, connect, disconnect
from demo.history import History
from demo.nodes import AsyncNodeProcess
from demo.outcome import CAUSES, EXIT_FAILED, EXIT_OK, first_cause, show
from demo.screen import Screen
from demo.two import demonstrate_two
from demo.urls import NoUrls, read_apt, read_file
from demo.verdict import judge

EXIT_CANNOT_RUN, EXIT_INTERRUPTED = 2, 130
HOLDS_SECONDS_MAX = 1.0


def _bounded(low: float, high: float, kind: type[int] | type[float]) -> Callable[[str], float]:
    """A converter for argparse that names the accepted range."""

    def convert(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(-1)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not in the range {low:g} to {high:g}")
        return value

    return convert


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="A polite crawl frontier over real URLs: one sub-queue per host, no network "
        "fetch, and a verdict at the end. Two nodes, which are flipped and killed meanwhile.",
        epilog="`python -m demo cluster` starts two nodes that stay up.",
    )
    count = _bounded(1, 1_000, int)
    parser.add_argument("--urls", type=Path, metavar="FILE", help="URLs, one a line (default: apt)")
    parser.add_argument("--limit", type=_bounded(1, 1e9, int), help="use only the first LIMIT URLs")
    parser.add_argument("--workers", type=count, default=16)
    parser.add_argument("--connections", type=count, default=4)
    parser.add_argument("--in-flight", type=count, default=64, help="puts in flight a connection")
    parser.add_argument(
        "--fetch-ms",
        type=_bounded(0, 1_000 * HOLDS_SECONDS_MAX, float),
        default=0.0,
        help="how long each pretended fetch lasts (default 0: one turn of the loop)",
    )
    parser.add_argument("--wal-mode", choices=("none", "write", "fsync"), default="write")
    parser.add_argument("--single", action="store_true", help="one node, nobody flips or kills it")
    parser.add_argument(
        "--ack",
        choices=("local", "pair"),
        default="pair",
        help="with two nodes: when a put counts (default pair: when both have it)",
    )
    parser.add_argument(
        "--seconds",
        type=_bounded(1, 120, float),
        default=40.0,
        help="with two nodes: how long putting takes, as far as the machine keeps up (default 40)",
    )
    parser.add_argument(
        "--no-audit",
        dest="audit",
        action="store_false",
        help="with two nodes: do not read both logs with Spark at the end, though it is there",
    )
    parser.add_argument(
        "--no-witness",
        dest="witness",
        action="store_false",
        help="with two nodes: none beside them, so that an operator promotes the other one",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep data and both logs there")
    return parser


@contextlib.contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="tandem-demo-") as name:
        yield Path(name)


def run(argv: list[str]) -> int:
    """Run with these words; 0 means verdict ok, 1 failed, 2 that it could not be run at all."""
    options = _parser().parse_args(argv)
    console = Console()
    try:
        urls = read_file(options.urls) if options.urls else read_apt(console.print)
    except NoUrls as error:
        console.print(f"error: {error}", highlight=False, markup=False, soft_wrap=True)
        return EXIT_CANNOT_RUN
    urls = urls[: options.limit]
    try:
        with _directory(options.keep) as directory:
            job = _demonstrate if options.single else demonstrate_two
            return uvloop.run(job(console, options, urls, directory))
    except (*CAUSES, ExceptionGroup) as error:
        console.print(f"error: {first_cause(error)}", highlight=False, markup=False, soft_wrap=True)
        return EXIT_CANNOT_RUN
    except KeyboardInterrupt:
        console.print("stopped")
        return EXIT_INTERRUPTED


async def _demonstrate(
    console: Console, options: argparse.Namespace, urls: list[str], directory: Path
) -> int:
    plan = Plan(
        workers=options.workers,
        in_flight=options.in_flight,
        fetch_seconds=options.fetch_ms / 1_000,
    )
    history = History()
    async with AsyncNodeProcess(directory, wal_mode=options.wal_mode) as node:
        console.print(
            f"{len(urls):,} URLs, {plan.workers} workers over {options.connections} connections, "
            f"node on 127.0.0.1:{node.port}, wal.mode {options.wal_mode}",
            highlight=False,
            soft_wrap=True,
        )
        screen = Screen(console, history, len(urls), [f"127.0.0.1:{node.port}"])
        connections = await connect("127.0.0.1", node.port, options.connections)
        drawing = asyncio.create_task(screen.run())
        try:
            times, left = await _crawl(Crowd(connections, history, plan), screen, urls)
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)
            await disconnect(connections)
            if options.keep:
                history.write(directory)
    verdict = judge(history.puts, history.holds, left_in_tube=left)
    show(console, verdict, history, rate_rows(history, times))
    return EXIT_OK if verdict.ok else EXIT_FAILED


async def _crawl(crowd: Crowd, screen: Screen, urls: list[str]) -> tuple[tuple[float, float], int]:
    """Put, then work; returns the seconds of both, and what the server says is left."""
    await crowd.create_tube()
    screen.phase = "putting"
    started = time.monotonic()
    await crowd.put_all(urls)
    put_seconds = time.monotonic() - started
    screen.phase = "working"
    started = time.monotonic()
    work_ended = await crowd.work_all()
    work_seconds = work_ended - started
    screen.phase = "judging"
    try:
        left = await crowd.left_in_tube()
    except UNKNOWN_ERRORS:
        left = 0
    return (put_seconds, work_seconds), left


def rate_rows(history: History, seconds: tuple[float, float]) -> list[tuple[str, str]]:
    """How fast it went: puts in the first of both times, takes and acks in the second."""
    return [
        ("put", f"{history.accepted / max(seconds[0], 1e-9):,.0f}/s"),
        ("take+ack", f"{history.processed / max(seconds[1], 1e-9):,.0f}/s"),
    ]
