"""`tandemq witness`: the small process on a third machine that keeps the seat of two nodes.

Here: its flags, and what must hold before it listens. Must not be here: the witness itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tandemq_server.cli.output import USAGE, CommandError

if TYPE_CHECKING:
    from ssl import SSLContext

PANEL = "Node"
Listen = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="Where the nodes ask; port 0 takes any free one.",
        envvar="TANDEMQ_WITNESS_LISTEN",
    ),
]
Directory = Annotated[
    Path,
    typer.Option(
        metavar="DIR", help="Its log; created if missing.", envvar="TANDEMQ_WITNESS_DATA_DIR"
    ),
]
TokenEnv = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Variable with the nodes' token; required off loopback.",
        envvar="TANDEMQ_WITNESS_TOKEN_ENV",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the token, instead of a variable.",
        envvar="TANDEMQ_WITNESS_TOKEN_FILE",
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Certificate chain, PEM; required off loopback.",
        envvar="TANDEMQ_WITNESS_TLS_CERT",
    ),
]
Key = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Private key, PEM.", envvar="TANDEMQ_WITNESS_TLS_KEY"),
]
Clusters = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        max=10_000,
        help="Most clusters with a register here.",
        envvar="TANDEMQ_WITNESS_CLUSTERS_MAX",
    ),
]
Connections = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=8,
        max=100_000,
        help="Connections at one time.",
        envvar="TANDEMQ_WITNESS_CONNECTIONS_MAX",
    ),
]
Level = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(
        metavar="LEVEL",
        help="debug, info, warning or error.",
        envvar="TANDEMQ_WITNESS_LOG_LEVEL",
    ),
]
Format = Annotated[
    Literal["human", "json"],
    typer.Option(metavar="FORMAT", help="human or json.", envvar="TANDEMQ_WITNESS_LOG_FORMAT"),
]


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel=PANEL)(witness)


def witness(
    listen: Listen = "127.0.0.1:8400",
    data_dir: Directory = Path("witness"),
    token_env: TokenEnv = None,
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
    tls_key: Key = None,
    clusters_max: Clusters = 64,
    connections_max: Connections = 256,
    log_level: Level = "info",
    log_format: Format = "human",
) -> None:
    """Keep the seat of clusters of two nodes, until SIGTERM: who leads, and who may be promoted.

    For a third machine, however small; it holds no tasks. `failover.witness.url` of the nodes
    names it. Says `ready HOST:PORT` on standard output once it listens.
    """
    from tandemq_server.arbiters.base import ArbiterRefused
    from tandemq_server.arbiters.open import secret
    from tandemq_server.config.certificates import CertificateEnd, end_of
    from tandemq_server.config.units import split_address
    from tandemq_server.node.loop.log_lines import Logger
    from tandemq_server.witness.process import serve
    from tandemq_server.witness.server import Listening

    try:
        host, port = split_address(listen)
    except ValueError as error:
        raise CommandError(f"--listen: {listen} {error}", USAGE) from None
    if token_env is not None and token_file is not None:
        raise CommandError("--token-env and --token-file: give one of them", USAGE)
    try:
        token = secret(token_env, token_file, os.environ)
    except ArbiterRefused as error:
        flag = "--token-env" if token_env is not None else "--token-file"
        raise CommandError(f"{flag}: {error}", USAGE) from None
    tls = _tls(tls_cert, tls_key)
    _check(host, token, tls)
    ends_s = None if tls_cert is None else end_of(tls_cert)
    certificates = () if ends_s is None else (CertificateEnd("tls.cert", ends_s),)
    listening = Listening(
        *(host, port, token, tls), connections_max=connections_max, certificates=certificates
    )
    raise typer.Exit(serve(data_dir, listening, clusters_max, Logger(log_level, log_format)))


def _tls(cert: Path | None, key: Path | None) -> SSLContext | None:
    from tandemq_server.config.sections import TlsSettings

    if (cert is None) != (key is None):
        raise CommandError("--tls-cert and --tls-key: give both or none", USAGE)
    if cert is None or key is None:
        return None
    try:
        return TlsSettings(cert=cert, key=key).context()
    except (OSError, ValueError) as error:
        text = f"--tls-cert: certificate or key cannot be used: {error}"
        raise CommandError(text, USAGE) from None


def _check(host: str, token: str | None, tls: SSLContext | None) -> None:
    """Whoever can swap the seat decides who leads: nobody else must be able to ask."""
    from tandemq_server.config.units import is_loopback
    from tandemq_server.witness.checks import TOKEN_MIN

    if token is not None and len(token) < TOKEN_MIN:
        raise CommandError(f"the token is shorter than {TOKEN_MIN} characters", USAGE)
    if token is not None and not all("!" <= char <= "~" for char in token):
        raise CommandError("the token has characters other than visible ASCII", USAGE)
    if is_loopback(host):
        return
    if token is None:
        raise CommandError(
            f"--listen {host}: other machines can reach it, so a token is needed",
            USAGE,
            "--token-file or --token-env",
        )
    if tls is None:
        raise CommandError(
            f"--listen {host}: other machines can reach it, so TLS is needed",
            USAGE,
            "--tls-cert and --tls-key; docs/operations.md shows how to make them",
        )
