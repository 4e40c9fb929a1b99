"""`tandemq status role switchover solo`: a node's role, by its admin API.

Here: flags to requests, answers to tables. Must not be here: HTTP (admin.client).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any, Literal

import typer

from tandemq.client.flags import KEY_HELP, NAME_HELP, tls_flag
from tandemq.client.tls import Tls
from tandemq_server.admin import client as admin
from tandemq_server.cli.output import (
    REFUSED,
    UNREACHABLE,
    USAGE,
    CommandError,
    json_line,
    note,
    table,
)
from tandemq_server.cli.remote import tls_given
from tandemq_server.cli.shared import given

PANEL = "Node"
DEFAULT_ADMIN = "127.0.0.1:8081"
#: How long the command waits for a switch-over that takes its time.
SWITCH_SECONDS = 120.0
Address = Annotated[
    str,
    typer.Option(
        "--admin",
        metavar="HOST:PORT",
        help="Where the node's admin API listens.",
        envvar="TANDEMQ_ADMIN_SERVER",
    ),
]
TokenEnv = Annotated[str, typer.Option(metavar="NAME", help="Variable with the admin API's token.")]
ADMIN = "TANDEMQ_ADMIN"
Authority = Annotated[
    str | None,
    tls_flag("ca", "Speak TLS; the authority of its certificate, or `system`.", scope=ADMIN),
]
Certificate = Annotated[
    str | None,
    tls_flag("cert", "Certificate to show, where the node wants one.", scope=ADMIN),
]
Key = Annotated[str | None, tls_flag("key", KEY_HELP, scope=ADMIN)]
ServerName = Annotated[str | None, tls_flag("server-name", NAME_HELP, "NAME", ADMIN)]
Node = AbstractContextManager[admin.AdminClient]
Lines = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def add_to(app: typer.Typer) -> None:
    for command in (status, role, switchover, solo):
        app.command(rich_help_panel=PANEL)(command)


@contextmanager
def admin_of(
    address: Address = DEFAULT_ADMIN,
    token_env: TokenEnv = "TANDEMQ_ADMIN_TOKEN",
    authority: Authority = None,
    certificate: Certificate = None,
    key: Key = None,
    server_name: ServerName = None,
) -> Iterator[admin.AdminClient]:
    """The flags of every command that asks a node's admin API (see shared.py).

    A client whose failures end the command in one line.
    """
    try:
        yield client_of(address, token_env, admin_tls_of(authority, certificate, key, server_name))
    except admin.AdminError as error:
        hint = ""
        if error.loss_bound:
            hint = f"--force --at-lsn LSN goes on: {admin.loss_text(error.loss_bound)}"
        elif error.kind == "unauthorized":
            hint = f"put the node's token into {token_env}, or name a variable with --token-env"
        raise CommandError(str(error), REFUSED, hint) from error
    except admin.AdminUnreachable as error:
        hint = "is the node up, with --admin set?"
        if "Tarantool" in str(error):
            hint = "that is the port for clients: name the one of `admin`"
        raise CommandError(str(error), UNREACHABLE, hint) from error
    except admin.WrongNode as error:
        raise CommandError(str(error), REFUSED, "`tandemq status` shows the LSN") from error


def admin_tls_of(
    authority: Authority = None,
    certificate: Certificate = None,
    key: Key = None,
    server_name: ServerName = None,
) -> Tls | None:
    """The flags of TLS to a node's admin API (see shared.py). Raises CommandError 2."""
    return tls_given(authority, certificate, key, server_name)


def client_of(address: str, token_env: str, tls: Tls | None) -> admin.AdminClient:
    """From the flags. Raises CommandError 2."""

    try:
        context, name = tls.dialling() if tls is not None else (None, None)
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error
    try:
        return admin.AdminClient(address, os.environ.get(token_env), context, server_name=name)
    except (ValueError, OSError) as error:
        raise CommandError(f"{address} {error}", USAGE) from error


@given(node=admin_of)
def status(
    *,
    node: Node,
    live: Annotated[
        bool, typer.Option("--live", help="Keep running, and print a line for each event.")
    ] = False,
    as_lines: Lines = False,
) -> None:
    """Show a node's state, term and log, and its cluster as it sees it."""
    with node as client:
        if live:
            _follow(client, as_lines)
            return
        told, cluster = client.status(), client.cluster()
    if as_lines:
        json_line({"status": told, "cluster": cluster})
        return
    table(("what", "value"), admin.status_rows(told))
    print()
    table(
        ("node", "state", "term", "LSN", "lag"), admin.cluster_rows(cluster), right=("term", "LSN")
    )


def _follow(client: admin.AdminClient, as_lines: bool) -> None:
    tell: Callable[[str, Any], None] = (
        (lambda kind, data: json_line({"event": kind, **data})) if as_lines else _say
    )
    for _id, kind, data in client.events():
        tell(kind, data)


def _say(kind: str, data: dict[str, Any]) -> None:
    if kind == "state":
        made = data["transition"]
        how = f" (from {made['from_state']}: {made['reason']})" if made else ""
        print(f"state {data['state']}{how}", flush=True)
    elif kind == "term":
        print(f"term  {data['term']['number'] if data['term'] else '-'}", flush=True)
    elif kind == "lag":
        print(f"lsn   {data['lsn']} (committed {data['commit_lsn']})", flush=True)


@given(node=admin_of)
def role(
    wanted: Annotated[
        Literal["ro", "rw"], typer.Argument(help="ro: stop serving; rw: serve.", metavar="ro|rw")
    ],
    *,
    node: Node,
    force: Annotated[
        bool, typer.Option("--force", help="Go on without proof that nothing is lost.")
    ] = False,
    at_lsn: Annotated[
        int | None,
        typer.Option(metavar="LSN", help="With --force: the node's LSN, to prove it is meant."),
    ] = None,
    as_lines: Lines = False,
) -> None:
    """Make a node read-only or writable, and wait until it is."""
    if force and at_lsn is None:
        raise CommandError(
            "--force needs --at-lsn", USAGE, "`tandemq status` shows the LSN of the node you mean"
        )
    with node as client:
        answer = admin.flip(client, wanted == "ro", force_lsn=at_lsn if force else None, tell=note)
    if as_lines:
        json_line(answer)
        return
    changed = "is now" if answer["changed"] else "was already"
    print(
        f"{client.address} {changed} {answer['state']}, term {answer['term']}, "
        f"LSN {answer['lsn']}, {answer['seconds'] * 1000:.0f} ms"
    )


@given(node=admin_of)
def switchover(
    to: Annotated[str, typer.Argument(help="The node that is to serve.", metavar="NODE")],
    *,
    node: Node,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would happen, and what is missing.")
    ] = False,
    as_lines: Lines = False,
) -> None:
    """Make another node the master: the present one stops first, and nothing is lost.

    Ask either of the two. When the other node does not come to serve, the first one goes on.
    """
    with node as client:
        report = client.switchover(to, dry_run)
        if "outcome" in report:
            note(f"under way after {report['seconds']:.1f} s")
            report = client.wait(report, SWITCH_SECONDS)
    if as_lines:
        json_line(report)
    else:
        for step in report["steps"]:
            took = "" if step["seconds"] is None else f"  {step['seconds'] * 1000:.0f} ms"
            print(
                f"{step['node']:<12} {step['name']:<10} {step['outcome']}{took}  {step['detail']}"
            )
        print(_verdict(report))
    if dry_run and not report["possible"]:
        raise CommandError("not possible now: " + "; ".join(report["missing"]), REFUSED)


def _verdict(report: dict[str, Any]) -> str:
    if report["done"]:
        return f"{report['to_node']} serves, {report['seconds'] * 1000:.0f} ms"
    if report["possible"]:
        return f"{report['to_node']} could take over now, lag {admin.lag_text(report['lag'])}"
    return f"{report['from_node'] or 'nobody'} goes on"


@given(node=admin_of)
def solo(
    *,
    node: Node,
    as_lines: Lines = False,
) -> None:
    """Pair mode: go on without the replica now, instead of after replication.solo_after."""
    with node as client:
        answer = client.solo()
    if as_lines:
        json_line(answer)
        return
    print(f"{client.address} goes on alone: {answer['state']}, term {answer['term']}")
