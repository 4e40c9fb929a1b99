"""`tandemq list bulk`: tasks looked through and changed by what they have in common.

Here: flags to calls, pages put together. Must not be here: connections (remote.py).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tandemq_server.cli.known import COLUMNS, as_json, cells
from tandemq_server.cli.output import json_line, table
from tandemq_server.cli.remote import Caller, Json, Remote, nothing, remote_of
from tandemq_server.cli.shared import given
from tandemq_server.cli.tasks import PANEL, TubeName, options_of

PAGE = 1000
State = Annotated[str | None, typer.Option(help="ready, taken, buried or delayed.")]
Utube = Annotated[str | None, typer.Option(metavar="NAME", help="The sub-queue.")]
Age = Annotated[str | None, typer.Option(metavar="TIME", help="Since the put, such as 30s, 2h.")]


def add_to(app: typer.Typer) -> None:
    for command in (list_tasks, bulk):
        name = "list" if command is list_tasks else None
        app.command(name, rich_help_panel=PANEL)(command)


@given(remote=remote_of)
def list_tasks(
    tube: TubeName,
    state: State = None,
    utube: Utube = None,
    older_than: Age = None,
    younger_than: Age = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """List tasks by state, sub-queue and age. Exit code 4 when there is none."""
    wanted = _filter(state, utube, older_than, younger_than)

    async def work(caller: Caller) -> list[Any]:
        found: list[Any] = []
        cursor: int | None = None
        while len(found) < limit and (cursor is not None or not found):
            more = {"limit": min(PAGE, limit - len(found)), "after": cursor, "info": True}
            page = await caller.call(f"queue.tube.{tube}:list", wanted | more)
            found += page["tasks"]
            cursor = page["cursor"]
            if cursor is None:
                break
        return found

    found = remote.run(work)
    if not found:
        raise nothing(f"no such task in {tube}")
    if as_lines:
        for task in found:
            json_line(as_json(task, task[3]))
    else:
        table(COLUMNS, [cells(task, task[3]) for task in found], right=("id",))


@given(remote=remote_of)
def bulk(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="kick, delete or move.")],
    tube: TubeName,
    state: State = None,
    utube: Utube = None,
    older_than: Age = None,
    younger_than: Age = None,
    to: Annotated[str | None, typer.Option(metavar="TUBE", help="Where move puts them.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them all.")] = False,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Kick, delete or move the tasks that match; taken ones only if asked for by --state."""
    wanted = _filter(state, utube, older_than, younger_than) | ({"to": to} if to else {})

    async def work(caller: Caller) -> int:
        count = 0
        cursor: int | None = None
        while dry_run or count < limit:
            bound = {"dry_run": True} if dry_run else {"limit": min(PAGE, limit - count)}
            step = await caller.call(
                f"queue.tube.{tube}:bulk", action, wanted | bound | {"after": cursor}
            )
            count += step["count"]
            cursor = step["cursor"]
            if cursor is None:
                break
        return count

    count = remote.run(work)
    if as_lines:
        json_line({"tube": tube, "action": action, "count": count, "dry_run": dry_run})
    else:
        print(f"{tube}: {count} to {action}" if dry_run else f"{tube}: {action} {count}")


def _filter(
    state: str | None, utube: str | None, older: str | None, younger: str | None
) -> dict[str, Any]:
    ages = {"older_than": older, "younger_than": younger}
    return options_of(ages, {"state": state, "utube": utube})
