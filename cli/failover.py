"""`tandemq failover`: who holds the seat, and whether this node takes over automatically."""

from __future__ import annotations

from typing import Any

import typer

from tandemq_server.cli.cluster import Lines, Node, admin_of
from tandemq_server.cli.output import REFUSED, CommandError, json_line, table
from tandemq_server.cli.shared import given

PANEL = "Node"
failover = typer.Typer(
    help="Automatic failover: who holds the seat, and whether this node may take it.",
    no_args_is_help=True,
)


def add_to(app: typer.Typer) -> None:
    for command in (status, pause, resume, seed):
        failover.command()(command)
    app.add_typer(failover, name="failover", rich_help_panel=PANEL)


@given(node=admin_of)
def status(*, node: Node, as_lines: Lines = False) -> None:
    """Show who holds the seat, who may be promoted, and what would happen if the master died."""
    with node as client:
        told = client.status()["failover"]
    if told is None:
        raise CommandError(
            "there is no arbiter", REFUSED, "failover.arbiter in the configuration names one"
        )
    _show(told, as_lines)


@given(node=admin_of)
def pause(*, node: Node, as_lines: Lines = False) -> None:
    """Stop automatic takeovers by this node until it is resumed or restarted."""
    _change(node, "pause", as_lines)


@given(node=admin_of)
def resume(*, node: Node, as_lines: Lines = False) -> None:
    """Allow automatic takeovers by this node again, and forget those of the last hour."""
    _change(node, "resume", as_lines)


@given(node=admin_of)
def seed(*, node: Node, as_lines: Lines = False) -> None:
    """Write the seat of the serving node anew, after the arbiter lost or forgot it."""
    _change(node, "seed", as_lines)


def _change(node: Node, action: str, as_lines: bool) -> None:
    with node as client:
        told = client.failover(action)
    _show(told, as_lines)


def _show(told: dict[str, Any], as_lines: bool) -> None:
    if as_lines:
        json_line(told)
        return
    rows = [
        ("arbiter", told["arbiter"] + (f": {told['problem']}" if told["problem"] else "")),
        ("seat", f"{told['no']} of {told['master']}" if told["master"] else "nobody has taken it"),
        ("may be promoted", told["partner"] or "nobody"),
        ("written", told["by"]),
        ("this node", told["stand"] + ("" if told["candidate"] else ", no candidate")),
        ("paused", told["paused"]),
        ("if the master died", told["outlook"]),
        ("last takeover", told["last"]),
    ]
    table(("what", "value"), [(name, value) for name, value in rows if value])
