"""Sections of the configuration that say where the arbiter is, and how to get in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

from tandemq_server.config import units
from tandemq_server.config.sections import VARIABLE, Section, text


def _url(given: str) -> str:
    try:
        parts = urlsplit(given)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname)
        sound = sound and parts.port != 0 and not (parts.query or parts.fragment or parts.username)
    except ValueError:
        sound = False
    if not sound or not given.isprintable() or " " in given:
        raise ValueError("is not a URL such as http://127.0.0.1:2379")
    return given


Url = Annotated[str, AfterValidator(_url)]
Urls = Annotated[tuple[Url, ...], BeforeValidator(units.words)]


class EtcdSettings(Section):
    """An etcd cluster, 3.4 or newer, as the arbiter."""

    endpoints: Urls = text(
        ("http://127.0.0.1:2379",),
        "Client URLs of its members; one that answers is enough.",
        "URLs, http or https",
        min_length=1,
        max_length=16,
    )
    user: str | None = text(None, "User to log in as.", "a user name, null", min_length=1)
    password_env: str | None = text(
        None,
        "Variable with the user's password.",
        "name of a variable, null",
        pattern=VARIABLE,
    )
    password_file: Path | None = text(
        None, "File with the password, instead of password_env.", "a file, null"
    )
    ca: Path | None = text(
        None, "Authorities of its certificates, PEM; null: the machine's.", "a file, null"
    )
    certificate: Path | None = text(None, "Certificate this node shows it, PEM.", "a file, null")
    key: Path | None = text(None, "Private key of that certificate, PEM.", "a file, null")


class WitnessSettings(Section):
    """A witness (`tandemq witness`) as the arbiter."""

    url: Url = text("http://127.0.0.1:8400", "Where it listens.", "a URL, http or https")
    token_env: str | None = text(
        None,
        "Variable with its token.",
        "name of a variable, null",
        pattern=VARIABLE,
    )
    token_file: Path | None = text(
        None, "File with the token, instead of token_env.", "a file, null"
    )
    ca: Path | None = text(
        None,
        "Authorities of its certificate, PEM, or that certificate; null: the machine's.",
        "a file, null",
    )
