"""`tandemq bench`: load over the wire from a terminal; rates and latency percentiles.

Here: flags, progress, the closing table. Must not be here: the load itself (load.py).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from tandemq.model.units import GIB
from tandemq_server.cli.output import json_line, table
from tandemq_server.cli.remote import Json, Remote, remote_of
from tandemq_server.cli.shared import given

KINDS = Literal["fifo", "fifottl", "limfifottl", "utube", "utubettl"]


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Node")(bench)


@given(remote=remote_of)
def bench(
    kind: Annotated[KINDS, typer.Option("--type", help="Type of the tube.")] = "fifo",
    count: Annotated[int, typer.Option(min=1, max=100_000_000, help="Tasks.")] = 100_000,
    connections: Annotated[int, typer.Option(min=1, max=1000)] = 4,
    in_flight: Annotated[int, typer.Option(min=1, max=10_000, help="Requests a connection.")] = 64,
    size: Annotated[int, typer.Option(min=0, max=GIB, help="Bytes a payload.")] = 100,
    utubes: Annotated[int, typer.Option(min=1, help="Sub-queues, for utube types.")] = 1000,
    tube: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="An existing tube; otherwise one is made."),
    ] = None,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Put COUNT tasks, then take and ack them all, and tell how fast that went.

    The tube made for it is dropped at the end. Latencies include this client's own work.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from tandemq_server.cli.load import Load, Plan

    plan = Plan(kind, count, connections, in_flight, size, utubes, tube)
    console = Console(stderr=True)
    shown = (TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), Remaining())
    rate = TextColumn("{task.fields[rate]:>10}")
    with Progress(
        *shown,
        rate,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        auto_refresh=False,
    ) as bar:
        task = bar.add_task("", total=count, rate="")

        def progress(phase: str, done: int, passed: float) -> None:
            speed = f"{done / passed:,.0f}/s" if passed > 0 else ""
            bar.update(task, description=phase, completed=done, rate=speed, refresh=True)

        results = remote.guard(lambda: Load(remote, plan, progress).run())
    if as_lines:
        for result in results:
            json_line(asdict(result))
        return
    columns = ("what", "count", "seconds", "per second", "p50 ms", "p95 ms", "p99 ms", "max ms")
    table(
        columns,
        [
            (
                one.what,
                f"{one.count:,}",
                f"{one.seconds:.2f}",
                f"{one.rate:,.0f}",
                *(f"{ms:.2f}" for ms in (one.p50_ms, one.p95_ms, one.p99_ms, one.max_ms)),
            )
            for one in results
        ],
        right=columns[1:],
    )
