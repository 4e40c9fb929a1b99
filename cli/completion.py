"""What a shell is told when TAB is pressed, beyond names of commands and flags.

Here: asking the node, briefly; no answer is no words. Must not be here: errors anybody sees.
"""

from __future__ import annotations

import os

import typer

from tandemq_server.cli.output import CommandError
from tandemq_server.cli.remote import DEFAULT_SERVER, Caller, remote_of

#: Nobody waits longer for words.
PATIENCE_SECONDS = 1.0


def tube_names(context: typer.Context, incomplete: str) -> list[str]:
    """Tubes of the node that the words so far, or the environment, name."""
    given = context.params
    server = given.get("server") or os.environ.get("TANDEMQ_SERVER") or DEFAULT_SERVER
    user = given.get("user") or os.environ.get("TANDEMQ_USER")

    import asyncio

    async def ask(caller: Caller) -> list[str]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return sorted(await caller.call("queue.statistics") or {})

    try:
        names = ("tls_ca", "tls_cert", "tls_key", "tls_server_name")
        tls = [given.get(name) or os.environ.get(f"TANDEMQ_{name.upper()}") for name in names]
        remote = remote_of(server, user, given.get("password_env") or "TANDEMQ_PASSWORD", *tls)
        return [name for name in remote.run(ask) if name.startswith(incomplete)]
    except (CommandError, TimeoutError):
        return []
