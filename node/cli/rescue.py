"""`tandemq rescue list|show|replay`: records a rewind cut off the log, and putting them again.

Here: tables, JSON lines, the order of sending. Must not be here: reading files (rescue_files.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from node.cli.directories import time_text
from node.cli.files import Directory
from node.cli.output import REFUSED, CommandError, json_line, note, table
from node.cli.remote import Caller, Json, Remote, remote_of
from node.cli.shared import given

if TYPE_CHECKING:
    from node.rescue_files import Replayed, Rescued, RescueFiles
    from replication.rescue import ReplayPlan, RescuedTask

Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="As `rescue list` shows it; else the only one."),
]


def add_to(app: typer.Typer) -> None:
    rescue = typer.Typer(
        no_args_is_help=True, help="Records that a rewind cut off the log: look, put again."
    )
    rescue.command("list")(list_)
    rescue.command()(show)
    rescue.command()(replay)
    app.add_typer(rescue, name="rescue", rich_help_panel="Node")


@contextmanager
def _files(directory: Any) -> Iterator[RescueFiles]:
    """The directory's rescue files; what goes wrong with them is one line."""
    from model.errors import StorageError
    from node.rescue_files import RescueFiles
    from replication.rescue import RescueError
    from storage.files import FileDisk

    try:
        disk = FileDisk(directory, read_only=True)
        try:
            yield RescueFiles(disk)
        finally:
            disk.release()
    except StorageError as error:
        raise CommandError(str(error), REFUSED) from None
    except RescueError as error:
        raise CommandError(f"{directory}: {error}", REFUSED, "nothing was changed") from None
    except ValueError as error:
        raise CommandError(str(error), REFUSED, "nothing was changed") from None


def _chosen(files: RescueFiles, name: str | None) -> Rescued:
    cuts = files.cuts()
    found = [cut for cut in cuts if name in (None, cut.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(cut.name for cut in cuts) or "none"
    what = "nothing was cut here" if not cuts else f"which one? there are {names}"
    if name is not None:
        what = f"no rescue file {name}; there are {names}"
    raise CommandError(what, REFUSED, "`tandemq rescue list DIR` shows them")


def list_(directory: Directory, as_lines: Json = False) -> None:
    """List what was cut off this node's log, oldest first."""
    from node.rescue_files import load_replayed

    rows = []
    with _files(directory) as files:
        for cut in files.cuts():
            plan, done = files.plan(cut), load_replayed(directory, cut.name)
            rows.append(
                {
                    "name": cut.name,
                    "first_lsn": cut.note.first_lsn,
                    "last_lsn": cut.note.last_lsn,
                    "records": cut.records,
                    "tasks": len(plan.tasks),
                    "replayed": len(done.put),
                    "will_run_again": len(plan.finished),
                    "time": time_text(cut.note.time_us),
                    "reason": cut.note.reason,
                }
            )
        strays = files.strays()
    if as_lines:
        for row in rows:
            json_line(row)
    elif rows:
        columns = tuple(name.replace("_", " ") for name in rows[0])
        table(columns, [tuple(row.values()) for row in rows], right=columns[1:7])
    else:
        print("nothing was cut here")
    for file in strays:
        note(f"{file} has no note: `tandemq log dump --rescue {file}` shows its records")


def show(directory: Directory, name: Name = None, as_lines: Json = False) -> None:
    """Show the tasks of one cut: those to put again, those that run again anyway."""
    from node.rescue_files import load_replayed

    with _files(directory) as files:
        cut = _chosen(files, name)
        plan, done = files.plan(cut), load_replayed(directory, cut.name)
    rows = [_row(task, done) for task in plan.tasks]
    again: list[dict[str, Any]] = [
        {
            "lsn": None,
            "tube": cut.note.tubes.get(space, (str(space), ""))[0],
            "id": task_id,
            "what": "will run again",
            "options": {},
            "payload": None,
        }
        for space, task_id in plan.finished
    ]
    if as_lines:
        for row in (*rows, *again):
            json_line(row)
        return
    print(cut.note.summary)
    table(
        ("LSN", "tube", "id", "what", "options", "payload"),
        [
            tuple("" if value in (None, {}) else value for value in row.values())
            for row in (*rows, *again)
        ],
        right=("LSN", "id"),
    )


def _row(task: RescuedTask, done: Replayed) -> dict[str, Any]:
    from node.rescue_files import NotSendable, is_buried, options_of, payload_of

    key = (task.space_id, task.task_id)
    what = "put again" if not is_buried(task) else "buried"
    if key in done.put:
        what = f"replayed as {done.put[key]}"
    elif key in done.open:
        what = "replayed, outcome unknown"
    try:
        payload = payload_of(task)
    except NotSendable as error:
        what, payload = f"cannot be put: {error}", None
    return {
        "lsn": task.lsn,
        "tube": task.tube,
        "id": task.task_id,
        "what": what,
        "options": options_of(task),
        "payload": payload,
    }


@given(remote=remote_of)
def replay(
    directory: Directory,
    name: Name = None,
    *,
    remote: Remote,
    really: Annotated[
        bool, typer.Option("--yes", help="Do it; without this, only say what would be done.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also what an earlier replay has put already.")
    ] = False,
    buried: Annotated[bool, typer.Option("--buried", help="Also buried tasks; ready.")] = False,
    as_lines: Json = False,
) -> None:
    """Put the tasks of one cut into their tubes again, on the node that serves now.

    What was put is written down beside the rescue file, so that a second replay puts nothing twice.
    """
    from node.rescue_files import load_replayed

    with _files(directory) as files:
        cut = _chosen(files, name)
        plan, done = files.plan(cut), load_replayed(directory, cut.name)
    chosen, counts = _choose(plan, done, again, buried)
    if really:
        try:
            remote.run(lambda caller: _put(caller, chosen, done, remote.where))
        finally:
            counts["put"] = sum((t.space_id, t.task_id) in done.put for t in chosen)
            _report(cut.name, counts, as_lines, f"put into {remote.where}")
        return
    counts["put"] = len(chosen)
    _report(cut.name, counts, as_lines, f"would be put into {remote.where}")
    if chosen and not as_lines:
        note("a dry run: nothing was sent; --yes does it")


def _choose(
    plan: ReplayPlan, done: Replayed, again: bool, buried: bool
) -> tuple[list[RescuedTask], dict[str, int]]:
    from node.rescue_files import NotSendable, is_buried, payload_of

    counts = dict.fromkeys(("put", "replayed before", "outcome unknown", "buried", "left out"), 0)
    chosen = []
    for task in plan.tasks:
        key = (task.space_id, task.task_id)
        if key in done.put and not again:
            counts["replayed before"] += 1
            continue
        if key in done.open and not again:
            counts["outcome unknown"] += 1
            continue
        if is_buried(task) and not buried:
            counts["buried"] += 1
            continue
        try:
            payload_of(task)
        except NotSendable:
            counts["left out"] += 1
            continue
        if not task.tube:
            counts["left out"] += 1
            continue
        chosen.append(task)
    counts["will run again"] = len(plan.finished)
    return chosen, counts


async def _put(caller: Caller, tasks: list[RescuedTask], done: Replayed, server: str) -> None:
    """One after the other, in their order; each is written down before it is sent, and after."""
    from asynctnt.exceptions import TarantoolDatabaseError

    from node.rescue_files import options_of, payload_of

    for task in tasks:
        done.note(task, None, server)
        try:
            row = await caller.call(
                f"queue.tube.{task.tube}:put", payload_of(task), options_of(task)
            )
        except TarantoolDatabaseError:
            done.refused(task, server)
            raise
        if row is None:
            done.refused(task, server)
            raise CommandError(f"{task.tube} is full", REFUSED, "the rest can be replayed later")
        done.note(task, int(row[0]), server)


def _report(name: str, counts: dict[str, int], as_lines: bool, verb: str) -> None:
    if as_lines:
        json_line(
            {"name": name, "what": verb, **{k.replace(" ", "_"): v for k, v in counts.items()}}
        )
        return
    print(f"{name}: {counts['put']} {verb}")
    for label, number in counts.items():
        if number and label != "put":
            print(f"  {label}: {number}")
