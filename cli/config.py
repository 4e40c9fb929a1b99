"""`tandemq config check|schema` and `hash-password`: the configuration without a node.

Here: printing. Must not be here: the schema and its rules (config).
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tandemq_server.cli.output import USAGE, CommandError, json_line
from tandemq_server.cli.remote import Json
from tandemq_server.cli.serve import Set, assignments, load_settings

_SALT_BYTES = 16


def add_to(app: typer.Typer) -> None:
    config = typer.Typer(no_args_is_help=True, help="Check and explain the configuration.")
    config.command()(check)
    config.command()(schema)
    app.add_typer(config, name="config", rich_help_panel="Node")
    app.command("hash-password", rich_help_panel="Node")(hash_password)


def check(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="YAML.")] = None,
    settings: Set = None,
    show: Annotated[bool, typer.Option("--show", help="Print the outcome as JSON.")] = False,
    as_lines: Json = False,
) -> None:
    """Check a configuration as `serve` would: file, TANDEMQ_* variables, flags. Touches nothing."""
    loaded = load_settings(file, assignments(settings or ()))
    if show:
        # Hashes are no secrets to copy around.
        hidden = {"users": {"__all__": {"password_hash"}}}
        print(loaded.model_dump_json(indent=2, exclude=hidden))
    elif as_lines:
        json_line({"ok": True, "name": loaded.name})
    else:
        print("ok")


def schema(
    format: Annotated[  # the flag's name
        Literal["markdown", "json"], typer.Option("--format", help="For people or for editors.")
    ] = "markdown",
) -> None:
    """Print every setting with its default, range and meaning."""
    from tandemq_server.config.document import json_schema, markdown

    if format == "json":
        json_line(json_schema())
    else:
        sys.stdout.write(markdown())


def hash_password(
    password_env: Annotated[
        str | None, typer.Option("--password-env", metavar="VARIABLE", help="Instead of asking.")
    ] = None,
    as_lines: Json = False,
) -> None:
    """Ask for a password (or read it from a pipe) and print its hashes for the configuration."""
    from tandemq_server.wire.auth import chap_sha1_hash, pap_hash

    password = _password(password_env)
    salt = secrets.token_bytes(_SALT_BYTES)
    hashes: dict[str, Any] = {
        "chap_sha1": chap_sha1_hash(password).hex(),
        "pap_sha256": f"{salt.hex()}:{pap_hash(password, salt).hex()}",
    }
    if as_lines:
        json_line({"password_hash": hashes})
        return
    print("password_hash:")
    for name, value in hashes.items():
        print(f'  {name}: "{value}"')


def _password(password_env: str | None) -> str:
    if password_env is not None:
        if password_env not in os.environ:
            raise CommandError(f"--password-env: variable {password_env} is not set", USAGE)
        return os.environ[password_env]
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password
