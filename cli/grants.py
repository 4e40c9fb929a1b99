"""`tandemq grant revoke grants`: rights on tubes, by hand.

Here: flags to calls, replies to lines. Must not be here: connections (remote.py).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tandemq.model.rights import ROLE
from tandemq_server.cli.output import json_line, table
from tandemq_server.cli.remote import Caller, Json, Remote, remote_of
from tandemq_server.cli.shared import given
from tandemq_server.cli.tasks import TubeName

PANEL = "Rights"
GRANTS_SPACE = 518

Who = Annotated[str, typer.Argument(metavar="USER", help="A user's name, or a role's (--role).")]
IsRole = Annotated[bool, typer.Option("--role", help="USER is a role of the configuration.")]
Calls = Annotated[
    bool, typer.Option("--call", help="What producers and workers call: put, take, ack, ...")
]
Truncate = Annotated[bool, typer.Option("--truncate", help="Remove all tasks at once.")]
Manage = Annotated[bool, typer.Option("--manage", help="Pause, resume, redrive, bulk, list.")]


def add_to(app: typer.Typer) -> None:
    for command in (grant, revoke, grants):
        app.command(rich_help_panel=PANEL)(command)


def _options(call: bool, truncate: bool, manage: bool) -> dict[str, bool]:
    flags = {"call": call, "truncate": truncate, "manage": manage}
    return {name: True for name, given in flags.items() if given}


@given(remote=remote_of)
def grant(
    tube: TubeName,
    who: Who,
    call: Calls = False,
    truncate: Truncate = False,
    manage: Manage = False,
    role: IsRole = False,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Give a user rights on a tube; without flags to read it. They go when the tube is dropped."""
    options, method = _options(call, truncate, manage), "grant_role" if role else "grant"

    async def work(caller: Caller) -> Any:
        return await caller.call(f"queue.tube.{tube}:{method}", who, options)

    remote.run(work)
    if as_lines:
        json_line({"tube": tube, "granted": who, "role": role, **options})
    else:
        print(f"{tube}: granted to {who}")


@given(remote=remote_of)
def revoke(
    tube: TubeName,
    who: Who,
    call: Calls = False,
    truncate: Truncate = False,
    manage: Manage = False,
    role: IsRole = False,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Take back what was granted on a tube; without flags all of it."""
    options, method = _options(call, truncate, manage), "revoke_role" if role else "revoke"

    async def work(caller: Caller) -> Any:
        return await caller.call(f"queue.tube.{tube}:{method}", who, options)

    taken = remote.run(work)
    if as_lines:
        json_line({"tube": tube, "revoked": who, "role": role, "rights": taken})
    else:
        print(f"{tube}: {taken} rights of {who} taken back")


@given(remote=remote_of)
def grants(
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """List what was granted at run time (rights of the configuration are not among it)."""

    async def work(caller: Caller) -> Any:
        return (await caller.connection.select(GRANTS_SPACE)).body

    rows = [
        (row[0].removeprefix(ROLE), "role" if row[0].startswith(ROLE) else "user", row[1])
        for row in remote.run(work)
    ]
    if as_lines:
        for who, kind, call in rows:
            json_line({"who": who, "kind": kind, "call": call})
    else:
        table(("who", "", "may"), rows)
