"""`tandemq import`: tubes and tasks of a live Tarantool, by SELECT, into a running node.

Here: flags. Must not be here: the copying (cli/import_copy.py), which imports more than every
other command's help should wait for.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tandemq.client.tls import Tls
from tandemq_server.cli.output import USAGE, CommandError
from tandemq_server.cli.remote import Json, Remote, remote_of
from tandemq_server.cli.shared import given

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
            help="A space in the 1.5 queue's layout; becomes space N of queue15.",
        ),
    ] = None,
    records: Annotated[
        list[str] | None,
        typer.Option(
            "--xqueue",
            metavar="SPACE[=FILE]",
            help="A space of xqueue, declared here or in the YAML file: fields, features.",
        ),
    ] = None,
    from_user: Annotated[
        str | None, typer.Option(help="User to log in as there; guest unless given.")
    ] = None,
    from_password_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Variable with that password.")
    ] = "TANDEMQ_FROM_PASSWORD",
    from_tls_ca: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Connect there by TLS; the authority of its certificate."
        ),
    ] = None,
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
    tls = Tls.of(from_tls_ca)
    there = Remote.of(source, from_user, from_password_env, tls)
    if there.others or here.others:
        raise CommandError("--from, --server: one address each", USAGE, "name the master")
    from tandemq_server.cli.import_copy import run

    wanted = tubes or [], spaces or [], records or []
    run(source, there, here, wanted, page, dry_run, as_lines)
