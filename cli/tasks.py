"""`tandemq put take ack release bury kick delete peek`: one task at a time, by hand.

Here: flags to calls, replies to lines. Must not be here: connections (remote.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from tandemq_server.cli.completion import tube_names
from tandemq_server.cli.output import REFUSED, USAGE, CommandError, json_line, note, table
from tandemq_server.cli.remote import Caller, Json, Remote, nothing, remote_of, seconds
from tandemq_server.cli.shared import given

PANEL = "Tasks"
STATES = {"r": "ready", "t": "taken", "-": "done", "!": "buried", "~": "delayed"}
PUT_OPTIONS = ("ttl", "ttr", "delay")

TubeName = Annotated[str, typer.Argument(metavar="TUBE", autocompletion=tube_names)]
TaskId = Annotated[int, typer.Argument(metavar="ID", min=0)]
TaskIds = Annotated[list[int], typer.Argument(metavar="ID...", min=0)]
Session = Annotated[
    str | None,
    typer.Option("--session", metavar="HEX", help="The session that took it, as take printed."),
]
Duration = Annotated[str | None, typer.Option(metavar="TIME", help="Such as 5, 500ms, 1h.")]


def add_to(app: typer.Typer) -> None:
    for command in (put, take, ack, release, bury, kick, delete, peek):
        app.command(rich_help_panel=PANEL)(command)


@given(remote=remote_of)
def put(
    tube: TubeName,
    payload: Annotated[
        list[str], typer.Argument(metavar="PAYLOAD...", help="One task each; - reads lines.")
    ],
    as_json: Annotated[
        bool, typer.Option("--as-json", help="Payloads are JSON documents, not text.")
    ] = False,
    ttl: Duration = None,
    ttr: Duration = None,
    delay: Duration = None,
    pri: Annotated[
        int | None, typer.Option(help="Priority: a smaller number is served first.")
    ] = None,
    utube: Annotated[str | None, typer.Option(metavar="NAME", help="The sub-queue.")] = None,
    key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Put once: a repeated key puts nothing.")
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long a key is known; 1h unless given.")
    ] = None,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Put tasks into a tube; prints them as they were accepted."""
    times = {"ttl": ttl, "ttr": ttr, "delay": delay, "window": window}
    options = options_of(times, {"pri": pri, "utube": utube, "key": key})
    if key is not None and (len(payload) != 1 or payload == ["-"]):
        raise CommandError("--key: is for one task", USAGE, "give one payload that is not -")
    if window is not None and key is None:
        raise CommandError("--window: is for --key", USAGE)

    async def work(caller: Caller) -> list[Any]:
        rows: list[Any] = []
        for data in payloads(payload, as_json):
            row = await caller.call(f"queue.tube.{tube}:put", data, options)
            if row is None:
                show(rows, as_lines)
                raise nothing(f"{tube} did not accept it", "the tube is full: take something first")
            rows.append(row)
        return rows

    show(remote.run(work), as_lines)


@given(remote=remote_of)
def take(
    tube: TubeName,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait for a task.")
    ] = "0",
    finish: Annotated[bool, typer.Option("--ack", help="Acknowledge it at once.")] = False,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Take a task. Exit code 4 when none came in time.

    It stays taken after this command only if the node keeps sessions (--ttr more than 0): then
    finish it with --session and the session printed. Otherwise it becomes ready again.
    """
    wait = seconds(timeout, "--timeout")

    async def work(caller: Caller) -> tuple[Any, str]:
        session = await caller.session() if not finish else ""
        row = await caller.call(f"queue.tube.{tube}:take", wait, wait=wait)
        if row is not None and finish:
            row = await caller.call(f"queue.tube.{tube}:ack", row[0])
        return row, session

    row, session = remote.run(work)
    if row is None:
        raise nothing(f"nothing to take from {tube} within {wait:g} s")
    show([row], as_lines, session)
    if session:
        note(
            f"finish it with: tandemq ack {tube} {row[0]} --session {session} (while the node's "
            "ttr lasts; with ttr 0 the task is ready again by now)"
        )


@given(remote=remote_of)
def ack(
    tube: TubeName,
    task: TaskIds,
    session: Session = None,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Finish tasks that the session has taken."""
    each(remote, tube, "ack", task, (), session, as_lines)


@given(remote=remote_of)
def release(
    tube: TubeName,
    task: TaskIds,
    session: Session = None,
    ttl: Duration = None,
    delay: Duration = None,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Give taken tasks back."""
    options = options_of({"ttl": ttl, "delay": delay}, {})
    each(remote, tube, "release", task, (options,) if options else (), session, as_lines)


@given(remote=remote_of)
def bury(
    tube: TubeName,
    task: TaskIds,
    session: Session = None,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Set tasks aside until they are kicked."""
    each(remote, tube, "bury", task, (), session, as_lines)


@given(remote=remote_of)
def delete(
    tube: TubeName,
    task: TaskIds,
    session: Session = None,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Delete tasks, whatever their state."""
    each(remote, tube, "delete", task, (), session, as_lines)


@given(remote=remote_of)
def peek(
    tube: TubeName,
    task: TaskIds,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Look at tasks, and at what is known of them, without touching them."""
    from tandemq_server.cli.known import COLUMNS, as_json, cells, looked_up

    found = looked_up(remote, tube, task)
    if as_lines:
        for row, known in found:
            json_line(as_json(row, known))
    else:
        table(COLUMNS, [cells(row, known) for row, known in found], right=("id",))


@given(remote=remote_of)
def kick(
    tube: TubeName,
    count: Annotated[int, typer.Argument(metavar="COUNT", min=1)] = 1,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Make buried tasks ready again, at most COUNT. Exit code 4 when none was buried."""

    async def work(caller: Caller) -> Any:
        return await caller.call(f"queue.tube.{tube}:kick", count)

    kicked = remote.run(work)
    if not kicked:
        raise nothing(f"no task of {tube} is buried")
    if as_lines:
        json_line({"kicked": kicked})
    else:
        print(f"kicked {kicked}")


# -- helpers -------------------------------------------------------------------------------------


def options_of(times: dict[str, str | None], others: dict[str, Any]) -> dict[str, Any]:
    """Options of a call: what was given, times in seconds."""
    options = {name: seconds(text, f"--{name}") for name, text in times.items() if text is not None}
    return {**options, **{name: value for name, value in others.items() if value is not None}}


def payloads(words: Iterable[str], as_json: bool) -> Iterator[Any]:
    """What to put: each word, or each line of standard input for the word -."""
    for word in words:
        lines = (line.rstrip("\n") for line in sys.stdin) if word == "-" else iter([word])
        for line in lines:
            if not as_json:
                yield line
                continue
            try:
                yield json.loads(line)
            except ValueError as error:
                raise CommandError(f"payload {line[:40]!r} is not JSON: {error}", USAGE) from None


def each(
    remote: Remote,
    tube: str,
    method: str,
    tasks: Iterable[int],
    more: tuple[Any, ...],
    session: str | None,
    as_lines: bool,
) -> None:
    """Call a method of the tube for each task; what was done before a refusal is shown."""

    async def work(caller: Caller) -> list[Any]:
        rows: list[Any] = []
        for task in tasks:
            try:
                row = await caller.call(f"queue.tube.{tube}:{method}", task, *more)
            except Exception:
                show(rows, as_lines)
                raise
            if row is None:
                show(rows, as_lines)
                raise CommandError(f"{method} {task}: the node does not serve", REFUSED)
            rows.append(row)
        return rows

    show(remote.run(work, session), as_lines)


def show(rows: list[Any], as_lines: bool, session: str = "") -> None:
    """Tasks as a table, or each as a JSON line."""
    if not as_lines and rows:
        table(
            ("id", "state", "payload"),
            [(row[0], STATES.get(row[1], row[1]), row[2]) for row in rows],
            right=("id",),
        )
    for row in rows:
        known = {"id": row[0], "state": STATES.get(row[1], row[1]), "payload": row[2]}
        if repeated := row[3:4] == [True]:
            known["repeated"] = True
        if as_lines:
            json_line({**known, "session": session} if session else known)
        elif repeated:
            note(f"nothing was put: the key is that of task {row[0]}")
