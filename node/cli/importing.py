"""`tandemq import`: tubes and tasks of a live Tarantool, by SELECT, into a running node.

Here: what is copied, in which order, and what is said of it. Must not be here: what there is to
copy (node/cli/import_sources.py), what a row of the source means (engine/importing.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from node.cli import import_sources as sources
from node.cli.import_sources import Source
from node.cli.output import REFUSED, UNREACHABLE, USAGE, CommandError, json_line, note, table
from node.cli.remote import Json, Remote, remote_of
from node.cli.shared import given
from node.raw_client import ALL, RawConnection, RawError
from wire.client import ClientError

PAGE_MAX = 10_000


def add_to(app: typer.Typer) -> None:
    app.command("import", rich_help_panel="Tubes")(import_tubes)


@given(here=remote_of)
def import_tubes(
    source: Annotated[
        str, typer.Option("--from", metavar="HOST:PORT", help="The Tarantool to copy from.")
    ],
    tubes: Annotated[
        list[str] | None, typer.Option("--tube", metavar="NAME", help="Only these tubes.")
    ] = None,
    spaces: Annotated[
        list[str] | None,
        typer.Option(
            "--space15",
            metavar="SPACE:N",
            help="A space in the 1.5 queue's layout, to become space N of queue15.",
        ),
    ] = None,
    records: Annotated[
        list[str] | None,
        typer.Option(
            "--xqueue",
            metavar="SPACE[=FILE]",
            help="A space of xqueue, declared here already or by the YAML file: fields, features.",
        ),
    ] = None,
    from_user: Annotated[str | None, typer.Option(help="Log in there; else guest.")] = None,
    from_password_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Where that password is.")
    ] = "TANDEMQ_FROM_PASSWORD",
    page: Annotated[int, typer.Option(help="Tasks in one request.", min=1, max=PAGE_MAX)] = 1000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    *,
    here: Remote,
    as_lines: Json = False,
) -> None:
    """Copy tubes and their tasks from a live Tarantool (queue module, xqueue, 1.5-style spaces).

    Ids, states and deadlines are kept; what is taken there is ready here. Stop its workers and
    producers first. A run that was interrupted goes on where it stopped.
    """
    there = Remote.of(source, from_user, from_password_env)
    if there.others or here.others:
        raise CommandError("--from, --server: one address each", USAGE, "name the master")
    with _opened(there) as old:
        found = [
            *sources.tubes(old, tubes or []),
            *(sources.space15(old, text) for text in spaces or []),
        ]
        found += [sources.records(old, text) for text in records or []]
        if tubes:
            missing = sorted(set(tubes) - {one.tube for one in found})
            if missing:
                raise CommandError(f"no such tube there: {', '.join(missing)}", REFUSED)
        if dry_run:
            for one in found:
                one.copied = sum(map(len, old.pages(one.space, None, page, one.key_at)))
        else:
            with _opened(here) as new:
                for one in found:
                    _copy(old, new, one, source, page)
    _report(found, as_lines, dry_run)


@contextmanager
def _opened(remote: Remote) -> Iterator[RawConnection]:
    """A connection whose failures end the command in one line."""
    where = f"{remote.host}:{remote.port}"
    try:
        with RawConnection(remote.host, remote.port, remote.user, remote.password) as connection:
            yield connection
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CommandError(f"{where}: {reason}", UNREACHABLE, "is it up?") from error
    except (ClientError, RawError) as error:
        raise CommandError(f"{where}: {error}", REFUSED) from error


def _copy(old: RawConnection, new: RawConnection, one: Source, source: str, page: int) -> None:
    """Copy what is not here yet, then count: both sides must have the same number."""
    if one.kind == sources.RECORDS:
        sources.declare(new, one)
    else:
        opts = {**one.options, "if_not_exists": True}
        new.call("queue.create_tube", one.tube, one.kind, opts)
    known = new.call("tandem.import_state", one.tube) or {}
    one.total = known.get("count", 0)
    origin = f"{source}/{one.space}"
    for rows in old.pages(one.space, known.get("last"), page, one.key_at):
        one.total = new.call("tandem.import", one.tube, origin, raw=rows)
        one.copied += len(rows)
        note(f"{one.tube}: {one.total} tasks")
    beyond = old.select(one.space, [], iterator=ALL, offset=max(one.total - 1, 0), limit=2)
    if len(beyond) != min(one.total, 1):
        raise CommandError(
            f"{one.tube}: {one.total} tasks here, another number there",
            REFUSED,
            "its tasks changed meanwhile: stop its workers, drop the tube here, import again",
        )


def _report(found: list[Source], as_lines: bool, dry_run: bool) -> None:
    columns = ("tube", "type", "tasks", "copied")
    rows = [(o.tube, o.kind, o.copied if dry_run else o.total, 0 if dry_run else o.copied)
            for o in found]  # fmt: skip
    if as_lines:
        for row in rows:
            json_line(dict(zip(columns, row, strict=True)))
    else:
        table(columns, rows, right=("tasks", "copied"))
