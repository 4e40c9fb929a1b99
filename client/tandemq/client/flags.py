"""The flags and variables of TLS, the same in every command that dials a node.

Must not be here: what they do (tls.py).
"""

from __future__ import annotations

from typing import Annotated

import typer

TlsCa = Annotated[
    str | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        envvar="TANDEMQ_TLS_CA",
        help="Speak TLS; authority of the nodes' certificates, or `system`.",
    ),
]
TlsCert = Annotated[
    str | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        envvar="TANDEMQ_TLS_CERT",
        help="Certificate to show to nodes that want one.",
    ),
]
TlsKey = Annotated[
    str | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        envvar="TANDEMQ_TLS_KEY",
        help="Its key; unless given, in the same file.",
    ),
]
TlsServerName = Annotated[
    str | None,
    typer.Option(
        "--tls-server-name",
        metavar="NAME",
        envvar="TANDEMQ_TLS_SERVER_NAME",
        help="Name in the certificate, where that is not the address.",
    ),
]
