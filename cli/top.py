"""`tandemq top`: the cluster and its tubes, live.

Here: drawing, and when. Must not be here: asking (cli.cluster_view).
"""

from __future__ import annotations

import datetime
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tandemq.client.tls import Tls
from tandemq_server.cli.cluster import DEFAULT_ADMIN, TokenEnv, admin_tls_of, client_of
from tandemq_server.cli.output import UNREACHABLE, USAGE, CommandError, cell, json_line
from tandemq_server.cli.remote import Json, seconds
from tandemq_server.cli.shared import given

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from tandemq_server.cli.cluster_view import Gatherer, NodeRow, TopView

#: A node that does not answer for so long is shown as away until it does.
PATIENCE_S = 2.0
EVERY_MIN_S = 0.1
#: Lines of a screen that are not tubes.
_FRAME_LINES = 8
_TUBE_COLUMNS = ("tube", "type", "put/s", "take/s", "ack/s", "ready", "taken", "delayed", "buried",
                 "oldest", "wait", "waiting")  # fmt: skip
_NODE_COLUMNS = ("node", "address", "state", "term", "LSN", "lag", "clients", "")

Addresses = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        metavar="HOST:PORT",
        help="Admin addresses of the nodes; repeatable, or separated by commas.",
        envvar="TANDEMQ_ADMIN_SERVER",
    ),
]


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Node")(top)


@given(tls=admin_tls_of)
def top(
    addresses: Addresses = None,
    token_env: TokenEnv = "TANDEMQ_ADMIN_TOKEN",
    every: Annotated[str, typer.Option(metavar="TIME", help="How often to look.")] = "1s",
    sort: Annotated[
        Literal["name", "rate", "ready", "oldest"],
        typer.Option("--sort", help="Order of the tubes; all but name: largest first."),
    ] = "rate",
    once: Annotated[bool, typer.Option("--once", help="Show it once.")] = False,
    *,
    tls: Tls | None,
    as_lines: Json = False,
) -> None:
    """Show the cluster and its tubes live: roles, terms, lag; rates, counts, the oldest task.

    Name both nodes, and the view follows a switch-over and outlives the loss of one. Ctrl-C ends
    it. Exit code 3 with --once when no node answers.
    """
    from tandemq_server.cli.cluster_view import Gatherer

    period = seconds(every, "--every")
    if period < EVERY_MIN_S:
        raise CommandError(f"--every: {every} is out of range (accepted: 100ms or more)", USAGE)
    words = [word for text in addresses or [DEFAULT_ADMIN] for word in text.split(",") if word]
    clients = [_client(word.strip(), token_env, tls) for word in words]
    gatherer = Gatherer(clients)
    try:
        if once:
            view = gatherer.view()
            _print(view, sort, as_lines)
            if not view.reachable:
                problem = "; ".join(f"{row.address}: {row.problem}" for row in view.nodes)
                hint = "are the nodes up, with `admin` set?"
                raise CommandError(f"no node answers: {problem}", UNREACHABLE, hint)
        else:
            _stay(gatherer, period, sort, as_lines)
    finally:
        gatherer.close()


def _client(address: str, token_env: str, tls: Tls | None) -> Any:
    client = client_of(address, token_env, tls)
    client.timeout_s = PATIENCE_S
    return client


def _stay(gatherer: Gatherer, period: float, sort: str, as_lines: bool) -> None:
    """Look again and again until Ctrl-C or SIGTERM, which are obeyed between two looks.

    An exception out of the middle of a look could leave a lock of the threads taken for ever.
    """
    from rich.console import Console
    from rich.live import Live

    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda caught, _frame: stop.append(caught))
    console = Console()
    if as_lines or not console.is_terminal:
        for view in _views(gatherer, period, stop):
            _print(view, sort, as_lines)
    else:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for view in _views(gatherer, period, stop):
                live.update(_drawn(view, sort, console.height - _FRAME_LINES), refresh=True)
    raise KeyboardInterrupt


def _views(gatherer: Gatherer, period: float, stop: list[int]) -> Iterator[TopView]:
    """One a period; a slow answer delays the next, it does not make two at a time."""
    while not stop:
        due = time.monotonic() + period
        yield gatherer.view()
        while not stop and (left := due - time.monotonic()) > 0:
            time.sleep(min(left, EVERY_MIN_S))


def _print(view: TopView, sort: str, as_lines: bool) -> None:
    from tandemq_server.cli.cluster_view import ordered

    if as_lines:
        told = asdict(replace(view, tubes=tuple(ordered(view.tubes, sort))))
        json_line({"at": datetime.datetime.now(datetime.UTC).isoformat(), **told})
    else:
        from rich.console import Console

        console = Console(width=None if sys.stdout.isatty() else 200)
        console.print(_drawn(view, sort, None))
    sys.stdout.flush()


def _drawn(view: TopView, sort: str, lines: int | None) -> RenderableType:
    """`lines`: of tubes at most, None for all."""
    from rich.console import Group
    from rich.text import Text

    from tandemq_server.cli.cluster_view import ordered

    serving = ", ".join(view.writable) or "nobody"
    style = "bold red" if view.conflict or not view.writable else "bold"
    head = Text(f"tandemq   serving: {serving}", style=style)
    if view.conflict:
        head.append("   MORE THAN ONE CLAIMS TO BE WRITABLE")
    if view.outlook:
        head.append(f"   if the master died: {view.outlook}", style="dim")
    head.append(f"   {datetime.datetime.now().astimezone():%H:%M:%S}", style="dim")
    nodes = _table(_NODE_COLUMNS, {"term", "LSN", "clients"})
    for row in view.nodes:
        nodes.add_row(*_node_cells(row), style=_node_style(row))
    tubes = _table(_TUBE_COLUMNS, set(_TUBE_COLUMNS[2:]))
    found = ordered(view.tubes, sort)
    shown = found if lines is None else found[: max(1, lines - len(view.nodes))]
    for tube in shown:
        tubes.add_row(*_tube_cells(tube), style="red" if tube["problem"] else "")
    left = f"; {len(found) - len(shown)} more" if len(shown) < len(found) else ""
    told = f"tubes of {view.tubes_from}{left}" if view.tubes_from else "no node answers"
    return Group(head, nodes, Text(), Text(told, style="dim"), tubes)


def _table(columns: tuple[str, ...], right: set[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    return table


def _node_style(row: NodeRow) -> str:
    if row.writable:
        return "green"
    return "yellow" if row.problem else ""


def _node_cells(row: NodeRow) -> list[str]:
    lag = ""
    if row.lag is not None:
        lag = f"{row.lag['records']} rec {row.lag['seconds']:.1f} s"
    state = row.state + (" *" if row.writable else "") + (" solo" if row.solo else "")
    cells = (row.name, row.address, state, row.term, row.lsn, lag, row.connections, row.problem)
    return ["" if value is None else cell(value) for value in cells]


def _tube_cells(tube: dict[str, Any]) -> list[str]:
    rates = tube["rates"] or {}
    counts = [tube[name] for name in ("ready", "taken", "delayed", "buried")]
    times = [tube["oldest_ready_seconds"], tube["wait_seconds"]]
    waiting = tube["waiting_consumers"] + tube["waiting_producers"]
    return [
        cell(tube["name"]),
        cell(tube["type"]),
        *(f"{rates[name]:,.0f}" if name in rates else "" for name in ("put", "take", "ack")),
        *("" if count is None else f"{count:,}" for count in counts),
        *("" if time_s is None else duration(time_s) for time_s in times),
        str(waiting or ""),
    ]


def duration(value: float) -> str:
    """Three digits or so: 850 ms, 12.3 s, 4m05s, 3h12m, 5d02h."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, secs = divmod(int(value), 60)
    if minutes < 60:
        return f"{minutes}m{secs:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h"
