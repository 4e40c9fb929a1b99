"""`tandemq info`, and what `peek` and `list` tell of a task beside its payload.

Here: the map that TUBE:info answers, as lines for people and for programs. Must not be here:
connections (remote.py).
"""

from __future__ import annotations

import datetime
from typing import Any

import typer

from tandemq_server.cli.output import json_line, table
from tandemq_server.cli.remote import DENIED, NO_SUCH_CALL, Caller, Json, Remote, remote_of
from tandemq_server.cli.shared import given
from tandemq_server.cli.tasks import PANEL, STATES, TaskIds, TubeName

COLUMNS = ("id", "state", "attempts", "age", "due", "last failure", "payload")
_FAILURES = ("at", "reason")


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel=PANEL)(info)


@given(remote=remote_of)
def info(
    tube: TubeName,
    task: TaskIds,
    *,
    remote: Remote,
    as_lines: Json = False,
) -> None:
    """Tell all that is known of tasks: state, holder, deadlines, attempts, every failure."""
    for row, known in looked_up(remote, tube, task):
        if as_lines:
            json_line(as_json(row, known))
        else:
            _show(tube, row, known)


def looked_up(remote: Remote, tube: str, tasks: list[int]) -> list[tuple[Any, dict[str, Any]]]:
    """Each task as `peek` gives it, with what is known of it."""

    async def work(caller: Caller) -> list[tuple[Any, dict[str, Any]]]:
        return [await _looked_at(caller, tube, number) for number in tasks]

    found: list[tuple[Any, dict[str, Any]]] = remote.run(work)
    return found


async def _looked_at(caller: Caller, tube: str, task_id: int) -> tuple[Any, dict[str, Any]]:
    """A task as `peek` gives it, and what is known of it: {} where that may not be asked."""
    from asynctnt.exceptions import TarantoolDatabaseError

    row = await caller.call(f"queue.tube.{tube}:peek", task_id)
    try:
        return row, await caller.call(f"queue.tube.{tube}:info", task_id)
    except TarantoolDatabaseError as error:
        # Tubes of records know no info, and a user may have the right to peek alone.
        if error.code not in (NO_SUCH_CALL, DENIED):
            raise
        return row, {}


def as_json(row: Any, known: dict[str, Any]) -> dict[str, Any]:
    """One object with the same fields, whichever command tells it."""
    more = {name: value for name, value in known.items() if name not in ("id", "state")}
    return {"id": row[0], "state": STATES.get(row[1], row[1]), "payload": row[2], **more}


def cells(row: Any, known: dict[str, Any]) -> tuple[Any, ...]:
    """A row under COLUMNS."""
    age = known.get("age")
    return (
        row[0],
        _state(row, known),
        "" if "attempts" not in known else _attempts(known),
        "" if age is None else duration(age),
        _due(known),
        known.get("reason", ""),
        row[2],
    )


def _show(tube: str, row: Any, known: dict[str, Any]) -> None:
    lines: list[tuple[str, Any]] = [("task", row[0]), ("state", _state(row, known))]
    if "attempts" in known:
        lines.append(("attempts", _attempts(known)))
    elif known:
        # Whoever looks for why it fails must not take an empty answer for none.
        lines.append(("attempts", f"not counted, try: tandemq alter {tube} max_attempts=5"))
    if "created" in known:
        lines.append(("put", f"{moment(known['created'])}, {duration(known['age'])} ago"))
    if due := _due(known):
        lines.append(("due", f"{due}, {moment(known['due'])}"))
    lines += [(name, duration(known[name])) for name in ("ttl", "ttr") if name in known]
    lines += [(name, known[name]) for name in ("pri", "utube") if name in known]
    if "from_tube" in known:
        died = f"task {known['from_id']} of {known['from_tube']}"
        lines.append(("came from", f"{died}, dead after {known['from_attempts']} attempts"))
    lines += [(f"header {name}", value) for name, value in known.get("headers", {}).items()]
    lines.append(("payload", row[2]))
    table(("what", "value"), lines)
    if failures := known.get("failures"):
        print()
        table(_FAILURES, [(moment(one["time"]), one["reason"]) for one in failures])


def _state(row: Any, known: dict[str, Any]) -> str:
    state = STATES.get(row[1], row[1])
    holder = known.get("holder")
    if holder is None:
        return str(state)
    peer = f" from {holder['peer']}" if "peer" in holder else ", not connected"
    return f"{state} for {duration(holder['held'])} by session {holder['session']}{peer}"


def _attempts(known: dict[str, Any]) -> str:
    most = known.get("max_attempts")
    return f"{known['attempts']} of {most}" if most else str(known["attempts"])


def _due(known: dict[str, Any]) -> str:
    if "due_in" not in known:
        return ""
    return f"{known['then']} in {duration(max(0.0, known['due_in']))}"


def duration(seconds: float) -> str:
    """As people say it: 340 ms, 4.2 s, 3 min, 5.0 h, 12.0 d."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, name in ((86_400, "d"), (3600, "h")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.1f} s"


def moment(seconds: float) -> str:
    """A moment of the log's clock in this machine's time zone."""
    return datetime.datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


__all__ = ["COLUMNS", "add_to", "as_json", "cells", "duration", "looked_up", "moment"]
