"""`tandemq history`: what happened to a task, from the log of a data directory.

Here: steps as a table or as JSON lines. Must not be here: reading the log (storage.past).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandemq.model.units import SECOND_US
from tandemq_server.cli.directories import Opened, progress, time_text
from tandemq_server.cli.output import USAGE, CommandError, json_line, note, table
from tandemq_server.cli.remote import Json, nothing

if TYPE_CHECKING:
    from tandemq_server.storage.sought import Sought

COLUMNS = ("time", "call", "state", "session", "node", "reason", "LSN")
_SESSION_DIGITS = 8


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Tasks")(history)


def history(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A node's data directory.")],
    tube: Annotated[str, typer.Argument(metavar="TUBE")],
    task: Annotated[int | None, typer.Argument(metavar="[ID]", min=0)] = None,
    find: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Tasks with this in their payload, instead of an id."),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(metavar="NAME=VALUE", help="Tasks with this field in their payload."),
    ] = None,
    as_lines: Json = False,
) -> None:
    """Tell what happened to a task, step by step, also to one that is done; from the log's start.

    May run beside the node; the log goes back to its oldest segment. Exit code 4 when there is no
    such task.
    """
    from tandemq_server.storage.past import PastReader

    sought = _sought(find, field)
    if (task is None) == (sought is None):
        raise CommandError("give one of ID, --find TEXT and --field NAME=VALUE", USAGE)
    with Opened(directory) as disk:
        past = PastReader(disk, tube, None if task is None else [task], sought)
        steps = sorted(progress(past, "reading", past), key=lambda one: (one.id, one.lsn))
    for problem in past.problems:
        note(problem)
    if not steps:
        known = "" if past.known else f": it knows no tube {tube}"
        raise nothing(f"the log has nothing of such a task{known}")
    if as_lines:
        for step in steps:
            json_line({**step._asdict(), "at": step.at / SECOND_US})
        return
    for number in dict.fromkeys(step.id for step in steps):
        print(f"task {number} of {tube}")
        rows = [
            (
                time_text(one.at),
                one.call,
                f"{one.state} {one.moved}".strip(),
                (one.session or "")[:_SESSION_DIGITS],
                one.node,
                one.reason,
                one.lsn,
            )
            for one in steps
            if one.id == number
        ]
        table(COLUMNS, rows, right=("LSN",))


def _sought(find: str | None, field: str | None) -> Sought | None:
    from tandemq_server.storage.sought import SoughtField, Words

    name, equals, value = (field or "").partition("=")
    if find == "" or (field is not None and not (name and equals)) or (find and field):
        raise CommandError("either --find TEXT, or --field NAME=VALUE", USAGE)
    if field is not None:
        return SoughtField(name, value)
    return Words(find) if find else None
