"""`tandemq tubes stats create drop snapshot`: the queue as a whole, by hand.

Here: flags to calls, replies to tables. Must not be here: connections (remote.py).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tandemq_server.cli.completion import tube_names
from tandemq_server.cli.output import json_line, note, table
from tandemq_server.cli.remote import Caller, Json, Remote, nothing, remote_of
from tandemq_server.cli.serve import assignments
from tandemq_server.cli.shared import given
from tandemq_server.cli.tasks import TubeName

PANEL = "Tubes"
STATE_COLUMNS = ("ready", "taken", "delayed", "buried", "done", "total")
CALL_COLUMNS = ("put", "take", "ack")
CATALOGUE_SPACE = 512
SNAPSHOT_SECONDS = 600.0


def add_to(app: typer.Typer) -> None:
    for command in (stats, create, alter, drop):
        app.command(rich_help_panel=PANEL)(command)
    # The words people try first: `tubes create` is `create`.
    group = typer.Typer(invoke_without_command=True)
    group.callback()(tubes)
    for command in (stats, create, alter, drop):
        group.command()(command)
    app.add_typer(group, name="tubes", rich_help_panel=PANEL)
    app.command(rich_help_panel="Node")(snapshot)


@given(remote=remote_of)
def tubes(
    context: typer.Context,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """List the tubes with their types and how many tasks they hold."""
    if context.invoked_subcommand is not None:
        return
    found, types = remote.run(_everything)
    rows = [
        (name, types.get(name, "?"), counts["tasks"]["total"])
        for name, counts in sorted(found.items())
    ]
    if as_lines:
        for name, kind, total in rows:
            json_line({"name": name, "type": kind, "tasks": total})
    else:
        table(("tube", "type", "tasks"), rows, right=("tasks",))


@given(remote=remote_of)
def stats(
    tube: Annotated[str | None, typer.Argument(metavar="[TUBE]", autocompletion=tube_names)] = None,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Count tasks by state and calls by name, of one tube or all (--json has every call)."""

    async def work(caller: Caller) -> tuple[dict[str, Any], dict[str, Any]]:
        counted = await caller.call("queue.statistics", *([] if tube is None else [tube])) or {}
        return (counted if tube is None else {tube: counted}), await _whose(caller)

    found, whose = remote.run(work)
    if as_lines:
        for name, counts in sorted(found.items()):
            json_line({"tube": name, **counts, **whose})
        return
    if not whose.get("serves", True):
        note(
            f"of {whose['node']}, which does not serve: tasks as its copy has them, calls as it "
            f"made them itself, none since it last served; {whose['leader']}"
        )
    columns = ("tube", *STATE_COLUMNS, *(f"{call}s" for call in CALL_COLUMNS))
    rows = [
        (
            name,
            *(counts["tasks"].get(state, 0) for state in STATE_COLUMNS),
            *(counts["calls"].get(call, 0) for call in CALL_COLUMNS),
        )
        for name, counts in sorted(found.items())
    ]
    table(columns, rows, right=columns[1:])


@given(remote=remote_of)
def create(
    tube: TubeName,
    kind: Annotated[str, typer.Argument(metavar="TYPE", help="fifo, fifottl, utube, ...")],
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="KEY=VALUE", help="An option, such as ttl=60 or capacity=1000."
        ),
    ] = None,
    temporary: Annotated[
        bool,
        typer.Option("--temporary", help="In memory only: neither logged nor sent to replicas."),
    ] = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the same tube exists.")
    ] = False,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Create a tube."""
    options = assignments(option or (), "--option")
    flags = {"temporary": temporary, "if_not_exists": if_not_exists}
    options.update({name: True for name, given in flags.items() if given})

    async def work(caller: Caller) -> Any:
        return await caller.call("queue.create_tube", tube, kind, options)

    made = remote.run(work)
    if as_lines:
        json_line(made)
    else:
        print(f"{tube}: {kind}")


@given(remote=remote_of)
def alter(
    tube: TubeName,
    option: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="As capacity=1000; null restores the default."),
    ],
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Change options of a tube: retries, dead letters, capacity, ttl, ttr; tasks stay."""
    options = assignments(option, "OPTION")

    async def work(caller: Caller) -> Any:
        return await caller.call("queue.alter_tube", tube, options)

    made = remote.run(work)
    if as_lines:
        json_line(made)
    else:
        shown = ", ".join(f"{key} {made['opts'].get(key, 'default')}" for key in options)
        print(f"{tube}: {shown}")


@given(remote=remote_of)
def drop(
    tube: TubeName,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Drop a tube and its tasks. Refused while tasks are taken or consumers wait."""

    async def work(caller: Caller) -> Any:
        return await caller.call(f"queue.tube.{tube}:drop")

    remote.run(work)
    if as_lines:
        json_line({"dropped": tube})
    else:
        print(f"dropped {tube}")


@given(remote=remote_of)
def snapshot(
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Let the node write a snapshot now; returns when it is on disk."""

    async def work(caller: Caller) -> Any:
        return await caller.call("box.snapshot", wait=SNAPSHOT_SECONDS)

    answer = remote.run(work)
    if answer is None:
        raise nothing("the node gave no answer")
    if as_lines:
        json_line({"snapshot": answer})
    else:
        print(answer)


async def _whose(caller: Caller) -> dict[str, Any]:
    """Which node's counters were just read; {} where this user may not ask."""
    from asynctnt.exceptions import TarantoolDatabaseError

    try:
        told = await caller.call("box.info")
    except TarantoolDatabaseError:
        return {}
    master = told["queue"].get("master")
    leader = "no node it knows of serves"
    if master is not None:
        leader = f"{master['name']} serves: --server {master['address']}"
    return {"node": told["name"], "serves": not told["ro"], "leader": leader}


async def _everything(caller: Caller) -> tuple[dict[str, Any], dict[str, str]]:
    """Statistics of all tubes, and their types as far as this user may read them."""
    from asynctnt.exceptions import TarantoolDatabaseError

    found = await caller.call("queue.statistics") or {}
    try:
        rows = (await caller.connection.select(CATALOGUE_SPACE)).body
    except TarantoolDatabaseError:
        rows = []
    return found, {row[0]: row[3] for row in rows}
