"""Where secrets come from: a variable of the environment, or a file that holds nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandemq_server.config.schema import Settings

Key = tuple[str | int, ...]
#: A secret is a word, not a document.
_FILE_BYTES_MAX = 4096


def read_secret(variable: str | None, file: Path | None, env: Mapping[str, str]) -> str | None:
    """The secret, None where none is named. A file's last line end is no part of it.

    Raises OSError and ValueError (its text says what is wrong with the file's content).
    """
    if variable is not None:
        return env[variable]
    if file is None:
        return None
    with file.open("rb") as opened:
        content = opened.read(_FILE_BYTES_MAX + 1)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text or "\n" in text or len(content) > _FILE_BYTES_MAX:
        raise ValueError("must hold one line")
    return text


def files(settings: Settings) -> Iterator[tuple[Key, Path]]:
    """The files that secrets are to be read from."""
    if settings.admin_token_file is not None:
        yield ("admin_token_file",), settings.admin_token_file
    if settings.admin_second_token_file is not None:
        yield ("admin_second_token_file",), settings.admin_second_token_file
    for name in ("password_file", "second_password_file"):
        file = getattr(settings.replication, name)
        if file is not None:
            yield ("replication", name), file
        for number, user in enumerate(settings.users):
            file = getattr(user, name)
            if file is not None:
                yield ("users", number, name), file


def link_password(settings: Settings, env: Mapping[str, str]) -> str:
    """What this node says to its peers, and they to it."""
    replication = settings.replication
    return read_secret(replication.password_env, replication.password_file, env) or ""
