"""`tandemq serve`: flags into settings, settings into a node.

Here: the flags people start a node with by hand. Must not be here: what they mean (config).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from tandemq_server.cli.output import USAGE, CommandError

PANEL = "Node"
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration, YAML.", envvar="TANDEMQ_CONFIG"),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any other setting, as in limits.idle_seconds=60."
    ),
]
Init = Annotated[
    bool | None,
    typer.Option("--init", help="Let an empty node found a cluster before its peer is there."),
]
Guest = Annotated[
    str | None,
    typer.Option(metavar="RIGHTS", help="none (the default), all, or patterns, comma separated."),
]


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel=PANEL)(serve)


def assignments(words: Iterable[str], flag: str = "--set") -> dict[str, Any]:
    """{"limits.idle_seconds": 60} of "limits.idle_seconds=60"; values are YAML."""
    found: dict[str, Any] = {}
    for word in words:
        import yaml

        key, equals, value = word.partition("=")
        if not key or not equals:
            raise CommandError(f"{flag} {word}: expected KEY=VALUE", USAGE)
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise CommandError(f"{flag} {key}: the value is not YAML", USAGE) from None
    return found


def load_settings(config: Path | None, flags: dict[str, Any]) -> Any:
    """Settings of this process's environment. Raises CommandError with every mistake."""
    from tandemq_server.config import ConfigError, Settings

    try:
        return Settings.load(config, flags, os.environ)
    except ConfigError as error:
        hint = "`tandemq config schema` lists every setting with its range"
        raise CommandError(str(error), USAGE, hint) from None


def serve(
    config: Config = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where clients connect.")
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Log and snapshots; created if missing.")
    ] = None,
    wal_mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="none, write or fsync (the default).")
    ] = None,
    guest: Guest = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="This node's name.")] = None,
    admin: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the admin API listens.")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Another node of the cluster; repeatable."),
    ] = None,
    read_only: Annotated[
        bool | None, typer.Option("--read-only/--writable", help="Start as a replica.")
    ] = None,
    init: Init = None,
    in_replicaset: Annotated[
        bool | None,
        typer.Option("--in-replicaset/--alone", help="Workers keep tasks across a switch-over."),
    ] = None,
    ttr: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long a lost session keeps its tasks.")
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="Certificate chain, PEM.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="Private key, PEM.")] = None,
    allow_open: Annotated[
        bool | None, typer.Option("--allow-open", help="Allow --guest all off loopback.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="human or json.")] = None,
    settings: Set = None,
) -> None:
    """Run a node until SIGTERM. Says `ready HOST:PORT` on standard output once it serves.

    Flags win over TANDEMQ_* variables (TANDEMQ_WAL__MODE=write), those over the file.
    """
    given = {
        "name": name,
        "listen": listen,
        "admin": admin,
        "data_dir": data_dir,
        "read_only": read_only,
        "init": init,
        "peers": peer or None,
        "guest": guest,
        "allow_open": allow_open,
        "queue.ttr": ttr,
        "queue.in_replicaset": in_replicaset,
        "wal.mode": wal_mode,
        "tls.cert": tls_cert,
        "tls.key": tls_key,
        "log.level": log_level,
        "log.format": log_format,
    }
    flags = {key: value for key, value in given.items() if value is not None}
    flags = {**assignments(settings or ()), **flags}
    loaded = load_settings(config, flags)
    from tandemq_server.config import Settings
    from tandemq_server.node.main import serve as serve_node

    raise typer.Exit(serve_node(loaded, lambda: Settings.load(config, flags, os.environ)))
