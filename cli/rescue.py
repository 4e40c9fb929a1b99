"""`tandemq rescue list|show|replay`: records a rewind cut off the log, and putting them again.

Here: tables, JSON lines, the order of sending. Must not be here: reading files (rescue_files.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandemq.model.task import STATE_NAMES
from tandemq_server.cli.directories import time_text
from tandemq_server.cli.files import Directory
from tandemq_server.cli.output import REFUSED, UNREACHABLE, CommandError, json_line, note, table
from tandemq_server.cli.remote import DENIED, NO_SUCH_CALL, Caller, Json, Remote, remote_of
from tandemq_server.cli.shared import given

if TYPE_CHECKING:
    from tandemq_server.cli.raw_client import RawConnection
    from tandemq_server.node.loop.rescue_files import Cut, Replayed, Rescued, RescueFiles
    from tandemq_server.replication.replay import ReplayPlan, RescuedTask

_LISTED = (
    "name", "first_lsn", "last_lsn", "records", "tasks", "replayed", "will_run_again", "changed",
    "time", "reason", "problem",
)  # fmt: skip
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
    from tandemq.model.errors import StorageError
    from tandemq_server.node.loop.rescue_files import RescueFiles
    from tandemq_server.replication.rescue import RescueError
    from tandemq_server.storage.files import FileDisk

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
    from tandemq_server.node.loop.rescue_files import Unreadable

    cuts = files.cuts()
    found = [cut for cut in cuts if name in (None, cut.name)]
    if len(found) == 1:
        if isinstance(found[0], Unreadable):
            raise CommandError(found[0].problem, REFUSED, "the other cuts can be read")
        return found[0]
    names = ", ".join(cut.name for cut in cuts) or "none"
    what = "nothing was cut here" if not cuts else f"which one? there are {names}"
    if name is not None:
        what = f"no rescue file {name}; there are {names}"
    raise CommandError(what, REFUSED, "`tandemq rescue list DIR` shows them")


def list_(directory: Directory, as_lines: Json = False) -> None:
    """List what was cut off this node's log, oldest first."""
    with _files(directory) as files:
        rows = [_listed(directory, files, cut) for cut in files.cuts()]
        strays = [(name, files.in_log(name)) for name in files.strays()]
    problems = [f"{row['name']}: {row['problem']}" for row in rows if row["problem"]]
    if rows and not problems and not as_lines:
        rows = [{k: v for k, v in row.items() if k != "problem"} for row in rows]
    if as_lines:
        for row in rows:
            json_line(row)
    elif rows:
        columns = tuple(name.replace("_", " ") for name in rows[0])
        values = [tuple("" if v is None else v for v in row.values()) for row in rows]
        table(columns, values, right=columns[1:8])
    else:
        print("nothing was cut here")
    for file, is_copy in strays:
        if is_copy:
            note(f"{file}: of a cut that did not happen; the log has its records, delete the file")
        else:
            note(f"{file} has no note: `tandemq log dump --rescue {file}` shows its records")
    if problems:
        raise CommandError("\n".join(problems), REFUSED, "the other cuts can be read")


def _listed(directory: Path, files: RescueFiles, cut: Cut) -> dict[str, Any]:
    """What one line of the list says; what cannot be read says why, and hides no other."""
    from tandemq.model.errors import StorageError
    from tandemq_server.node.loop.rescue_files import Unreadable, load_replayed
    from tandemq_server.replication.rescue import RescueError

    row: dict[str, Any] = dict.fromkeys(_LISTED)
    row["name"] = cut.name
    if isinstance(cut, Unreadable):
        return {**row, "problem": cut.problem}
    note = cut.note
    row |= {"first_lsn": note.first_lsn, "last_lsn": note.last_lsn, "records": cut.records}
    row |= {"time": time_text(note.time_us), "reason": note.reason}
    try:
        plan = files.plan(cut)
        row |= {"tasks": len(plan.tasks), "will_run_again": len(plan.finished)}
        row["changed"] = len(plan.changed) + len(plan.emptied)
        row["replayed"] = len(load_replayed(directory, cut.name).put)
    except RescueError as error:
        row["problem"] = error.reason
    except (StorageError, ValueError) as error:
        row["problem"] = str(error)
    return row


def show(directory: Directory, name: Name = None, as_lines: Json = False) -> None:
    """Show the tasks of one cut: those to put again, those that run again anyway."""
    from tandemq_server.node.loop.rescue_files import load_replayed

    with _files(directory) as files:
        cut = _chosen(files, name)
        plan, done = files.plan(cut), load_replayed(directory, cut.name)
    rows = [_row(task, done) for task in plan.tasks]
    again: list[dict[str, Any]] = [
        {
            "lsn": None,
            "tube": plan.names.get(space, str(space)),
            "id": task_id,
            "what": what,
            "options": {},
            "payload": None,
        }
        for (space, task_id), what in _undone(plan)
    ]
    if as_lines:
        for row in (*rows, *again):
            json_line(row)
        return
    print(cut.note.summary)
    print("calls: " + ", ".join(f"{count} {call}" for call, count in plan.calls.items()))
    if cut.note.snapshot:
        first, last = cut.note.first_lsn, cut.note.saved_from - 1
        print(f"LSN {first}..{last} were in no log any more: {cut.note.snapshot} has what they did")
    table(
        ("LSN", "tube", "id", "what", "options", "payload"),
        [
            tuple("" if value in (None, {}) else value for value in row.values())
            for row in (*rows, *again)
        ],
        right=("LSN", "id"),
    )


def _undone(plan: ReplayPlan) -> Iterator[tuple[tuple[int, int | str | None], str]]:
    """(space id, task id) of tasks from before the fork, and what the cut took back of them."""
    for key in plan.finished:
        yield key, "will run again"
    for key, fields in plan.changed.items():
        state = STATE_NAMES.get(fields.get(1, ""), "changed")
        yield key, f"as before the cut: {state} in it"
    for space in plan.emptied:
        yield (space, None), "as before the cut: emptied or dropped in it"


def _row(task: RescuedTask, done: Replayed) -> dict[str, Any]:
    from tandemq_server.node.observe.replaying import (
        NotSendable,
        is_buried,
        is_done,
        options_of,
        sending,
        shown,
    )

    key = (task.space_id, task.task_id)
    what = "put again" if not is_buried(task) else "buried"
    if not task.lsn:
        what = "of a snapshot, may be there still"
    if key in done.put:
        what = f"replayed as {done.put[key]}"
    elif key in done.open:
        what = "replayed, outcome unknown"
    if is_done(task):
        what = "done in the cut"
    try:
        sending(task)
    except NotSendable as error:
        what = f"cannot be put: {error}"
    return {
        "lsn": task.lsn,
        "tube": task.tube,
        "id": task.task_id,
        "what": what,
        "options": options_of(task),
        "payload": shown(task),
    }


@given(remote=remote_of)
def replay(
    directory: Directory,
    name: Name = None,
    *,
    remote: Remote,
    really: Annotated[
        bool, typer.Option("--yes", help="Do it; otherwise only say what would happen.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also what an earlier replay already put.")
    ] = False,
    buried: Annotated[
        bool, typer.Option("--buried", help="Also buried tasks, as ready ones.")
    ] = False,
    unsure: Annotated[
        bool,
        typer.Option("--unsure", help="Also tasks of a snapshot, which may still be in the tube."),
    ] = False,
    as_lines: Json = False,
) -> None:
    """Put the tasks of one cut into their tubes again, on the node that serves now.

    What was put is written down beside the rescue file, so that a second replay puts nothing twice.
    """
    from tandemq_server.node.loop.rescue_files import load_replayed

    with _files(directory) as files:
        cut = _chosen(files, name)
        plan, done = files.plan(cut), load_replayed(directory, cut.name)
    chosen, counts = _choose(plan, done, again, buried, unsure)
    if really:
        try:
            remote.run(lambda caller: _put(caller, remote, chosen, done))
        finally:
            counts["put"] = sum((t.space_id, t.task_id) in done.put for t in chosen)
            _report(cut.name, counts, as_lines, f"put into {remote.where}")
        return
    counts["put"] = len(chosen)
    _report(cut.name, counts, as_lines, f"would be put into {remote.where}")
    if chosen and not as_lines:
        note("a dry run: nothing was sent; --yes does it")


def _choose(
    plan: ReplayPlan, done: Replayed, again: bool, buried: bool, unsure: bool
) -> tuple[list[RescuedTask], dict[str, int]]:
    from tandemq_server.node.observe.replaying import NotSendable, is_buried, is_done, sending

    counts = dict.fromkeys(("put", "replayed before", "outcome unknown"), 0)
    counts |= dict.fromkeys(("buried", "done", "unsure", "left out"), 0)
    chosen = []
    for task in plan.tasks:
        key = (task.space_id, task.task_id)
        if key in done.put and not again:
            counts["replayed before"] += 1
            continue
        if key in done.open and not again:
            counts["outcome unknown"] += 1
            continue
        if is_done(task):
            counts["done"] += 1
            continue
        if is_buried(task) and not buried:
            counts["buried"] += 1
            continue
        if not task.lsn and not unsure:
            counts["unsure"] += 1
            continue
        try:
            sending(task)
        except NotSendable:
            counts["left out"] += 1
            continue
        chosen.append(task)
    counts["will run again"] = len(plan.finished)
    counts["changed"] = len(plan.changed) + len(plan.emptied)
    return chosen, counts


async def _put(caller: Caller, remote: Remote, tasks: list[RescuedTask], done: Replayed) -> None:
    """One after the other, in their order; each is written down before it is sent, and after.

    Over a connection of its own to the node that was found, which sends payloads as they are.
    """
    from asynctnt.exceptions import TarantoolDatabaseError

    from tandemq_server.cli.raw_client import CallRefused, RawConnection
    from tandemq_server.wire.client import ClientError

    try:
        # On record there, who does it; who may not say so may still put.
        await caller.call("tandem.rescue_replay", done.path.name, len(tasks))
    except TarantoolDatabaseError as error:
        if error.code not in (NO_SUCH_CALL, DENIED):
            raise
    found = caller.connection
    try:
        with RawConnection(
            found.host, found.port, remote.user, remote.password, remote.tls
        ) as connection:
            for task in tasks:
                _put_one(connection, task, done, remote.where)
    except CallRefused as error:
        raise TarantoolDatabaseError(error.code, str(error)) from None
    except ClientError as error:
        hint = "the task at hand counts as outcome unknown: look before --again"
        raise CommandError(f"{remote.where}: {error}", UNREACHABLE, hint) from None


def _put_one(connection: RawConnection, task: RescuedTask, done: Replayed, server: str) -> None:
    from tandemq_server.cli.raw_client import CallRefused
    from tandemq_server.node.observe.replaying import id_of, sending

    wanted = sending(task)
    done.note(task, None, server)
    try:
        answer = connection.call_raw(wanted.call, wanted.args)
    except CallRefused:
        done.refused(task, server)
        raise
    new_id = id_of(task, answer[0]) if answer else None
    if new_id is None:
        done.refused(task, server)
        raise CommandError(f"{task.tube} is full", REFUSED, "the rest can be replayed later")
    done.note(task, new_id, server)


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
