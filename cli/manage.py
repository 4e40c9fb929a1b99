"""`tandemq pause resume redrive`: a tube held back or set going again, by hand.

Here: flags to calls, replies to lines. Must not be here: connections (remote.py).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tandemq_server.cli.output import json_line
from tandemq_server.cli.remote import Caller, Json, Remote, remote_of
from tandemq_server.cli.shared import given
from tandemq_server.cli.tasks import TubeName
from tandemq_server.cli.tubes import PANEL

What = Annotated[
    str | None, typer.Argument(metavar="[puts|takes]", help="One of the two; default both.")
]


def add_to(app: typer.Typer) -> None:
    for command in (pause, resume, redrive):
        app.command(rich_help_panel=PANEL)(command)


@given(remote=remote_of)
def pause(
    tube: TubeName,
    what: What = None,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Refuse puts into a tube, hold back its tasks from workers, or both, until resumed."""
    _change(remote, "pause", tube, what, as_lines)


@given(remote=remote_of)
def resume(
    tube: TubeName,
    what: What = None,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Let puts, takes, or both go on in a paused tube."""
    _change(remote, "resume", tube, what, as_lines)


def _change(remote: Remote, call: str, tube: str, what: str | None, as_lines: bool) -> None:
    async def work(caller: Caller) -> Any:
        return await caller.call(f"queue.tube.{tube}:{call}", *([] if what is None else [what]))

    state = remote.run(work)
    if as_lines:
        json_line({"tube": tube, "paused": state})
    else:
        paused = [name for name in ("puts", "takes") if state[name]]
        print(f"{tube}: {' and '.join(paused)} paused" if paused else f"{tube}: not paused")


@given(remote=remote_of)
def redrive(
    tube: TubeName,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="At most so many; 10000 unless given.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TUBE", help="Put them there, not where they came from."),
    ] = None,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Send dead letters back to the tubes they came from, oldest first."""

    async def work(caller: Caller) -> Any:
        options = {} if to is None else {"to": to}
        return await caller.call(f"queue.tube.{tube}:redrive", count, options)

    moved = remote.run(work)
    if as_lines:
        json_line({"tube": tube, "moved": moved})
    else:
        print(f"{tube}: {moved} sent back")
