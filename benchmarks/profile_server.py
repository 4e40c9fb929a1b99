"""Where the node's time goes: starts it under a profiler, loads it like wire.py, prints the top.

    python -m benchmarks.profile_server --driver fifo --what put --mode calls
Here: the run and the report. Must not be here: the profilers (profile_launch.py), goals.
"""

from __future__ import annotations

import argparse
import json
import os
import pstats
import sys
import tempfile
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import load
from benchmarks.profile_launch import START, STOP
from benchmarks.target import DRIVERS, Effort, Target
from demo.crowd import connect, disconnect
from demo.node_process import NodeFailed
from demo.nodes import AsyncNodeProcess

WHAT = ("all", "put", "take", "ping", "batches")


def parse(argv: list[str]) -> argparse.Namespace:
    """The options of a run."""
    parser = argparse.ArgumentParser(prog="profile_server", description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=("samples", "calls"), default="samples")
    parser.add_argument("--driver", choices=DRIVERS, default="fifo")
    parser.add_argument("--what", choices=WHAT, default="all", help="which calls are profiled")
    parser.add_argument("-n", "--count", type=int, default=200_000, help="tasks")
    parser.add_argument("--waiting", type=int, default=0, help="tasks in the tube beforehand")
    parser.add_argument("--wal-mode", choices=("none", "write", "fsync"), default="write")
    parser.add_argument("--top", type=int, default=30, help="lines of each table")
    parser.add_argument("--sort", default="tottime", help="order of --mode calls (pstats)")
    return parser.parse_args(argv)


async def loaded(options: argparse.Namespace, directory: Path, result: Path) -> list[str]:
    """Run the node under the profiler with the chosen load; the figures it reached meanwhile."""
    launcher = [sys.executable, "-m", "benchmarks.profile_launch", options.mode, str(result)]
    node = AsyncNodeProcess(directory, wal_mode=options.wal_mode, command=launcher)
    async with node:
        effort = Effort(count=options.count)
        connections = await connect("127.0.0.1", node.port, effort.connections)
        target = Target(node, effort, connections)
        await target.create(options.driver, options.driver)
        if options.waiting:
            await target.put_batches(options.driver, options.waiting)
        if options.what == "take":
            await target.put_batches(options.driver, options.count)
        os.kill(node.pid, START)
        await connections[0].ping()
        await _push(target, options)
        os.kill(node.pid, STOP)
        await connections[0].ping()
        await disconnect(connections)
    return [
        f"{name}: {one.rate:,.0f}/s, server {one.server_us:.1f} us/op under the profiler"
        for name in target.taken
        for one in [target.median(name)]
    ]


async def _push(target: Target, options: argparse.Namespace) -> None:
    driver, count = options.driver, options.count
    if options.what == "ping":
        await target.measure("ping", load.ping(target.connections, target.effort.shape, count))
    if options.what in {"all", "put"}:
        await target.measure("put", target.put(driver, count))
    if options.what in {"all", "take"}:
        await target.measure("take+ack", target.take_ack(driver, count))
    if options.what == "batches":
        await target.measure("batch put", target.put_batches(driver, count))
        await target.measure("batch take+ack", target.take_ack_batches(driver, count))


def report_samples(console: Console, path: Path, top: int) -> None:
    """Three tables of shares: the function itself, with all below it, and single lines."""
    content = json.loads(path.read_text(encoding="utf-8"))
    total = max(content["total"], 1)
    for key, title in (
        ("own", "in the function itself (C code it calls included)"),
        ("under", "in the function and everything below"),
        ("lines", "by line"),
    ):
        table = Table(title=f"{title}, {total:,} samples", title_justify="left")
        table.add_column("share", justify="right")
        table.add_column("where", no_wrap=True)
        ranked = sorted(content[key].items(), key=lambda pair: -pair[1])
        for where, count in ranked[:top]:
            table.add_row(f"{100 * count / total:.1f} %", where)
        console.print(table)


def main(argv: list[str]) -> int:
    """Profile and print; 0, or 2 when the node could not be run."""
    options = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 140)
    with tempfile.TemporaryDirectory(prefix="tandem-profile-") as name:
        result = Path(name) / "profile"
        try:
            lines = uvloop.run(loaded(options, Path(name) / "node", result))
            if not result.exists():
                raise NodeFailed("the node left no profile behind: it did not end in order")
        except (NodeFailed, OSError) as error:
            console.print(f"error: {error}", highlight=False, markup=False, soft_wrap=True)
            return 2
        if options.mode == "samples":
            report_samples(console, result, options.top)
        else:
            pstats.Stats(str(result)).strip_dirs().sort_stats(options.sort).print_stats(options.top)
        for line in lines:
            console.print(line, highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
