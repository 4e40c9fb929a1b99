"""The flags and variables of TLS, the same in every command that dials something.

Must not be here: what they do (tls.py).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer


def tls_flag(word: str, help_text: str, metavar: str = "FILE", scope: str = "TANDEMQ") -> Any:
    """`--tls-WORD`, and its variable `SCOPE_TLS_WORD`."""
    variable = f"{scope}_TLS_{word.upper().replace('-', '_')}"
    return typer.Option(f"--tls-{word}", metavar=metavar, envvar=variable, help=help_text)


KEY_HELP = "Its key; unless given, in the same file."
NAME_HELP = "Name in the certificate, where that is not the address."

TlsCa = Annotated[
    str | None, tls_flag("ca", "Speak TLS; authority of the nodes' certificates, or `system`.")
]
TlsCert = Annotated[str | None, tls_flag("cert", "Certificate to show to nodes that want one.")]
TlsKey = Annotated[str | None, tls_flag("key", KEY_HELP)]
TlsServerName = Annotated[str | None, tls_flag("server-name", NAME_HELP, "NAME")]
