"""Where the demonstration's URLs come from: Debian's package list, or any file of URLs.

Here: reading, de-duplicating, naming the host. Must not be here: tubes, workers, the network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

URLS_WANTED = 20_000
"""Fewer homepages than this from apt means that its lists are missing or very old."""

_UPDATE_SECONDS_MAX = 120
_HOST = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?/*([^/?#\s]+)", re.IGNORECASE)


class NoUrls(Exception):
    """There is nothing to crawl; the text is one line for the person at the terminal."""


def unique(urls: Iterable[str]) -> list[str]:
    """The URLs without blanks, comments (`#` first) and repetitions, in their first order."""
    stripped = (url.strip() for url in urls)
    return list(dict.fromkeys(url for url in stripped if url and not url.startswith("#")))


def host_of(url: str) -> str:
    """The host a polite crawler must not hurry: lower case, no port, never empty."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        found = _HOST.match(url)
        host = found.group(1).rsplit("@", 1)[-1] if found else url
    return host.lower().rstrip(".") or url


def read_file(path: Path) -> list[str]:
    """The URLs of a text file, one a line. Raises NoUrls when it cannot be read or has none."""
    try:
        urls = unique(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError as error:
        raise NoUrls(f"--urls {path}: {error.strerror or error}") from error
    if not urls:
        raise NoUrls(f"--urls {path}: no URL in it (one a line, # starts a comment)")
    return urls


def homepages(lines: Iterable[str]) -> list[str]:
    """The values of the Homepage fields in a Debian package list, each once."""
    prefix = "Homepage:"
    return unique(line[len(prefix) :] for line in lines if line.startswith(prefix))


def _dump_available() -> list[str]:
    run = subprocess.run(
        ["apt-cache", "dumpavail"], capture_output=True, text=True, errors="replace", check=False
    )
    return homepages(run.stdout.splitlines())


def read_apt(say: Callable[[str], None]) -> list[str]:
    """The homepages of Debian's packages; refreshes apt's lists first when they are thin.

    Only root can refresh them. Raises NoUrls when there is no apt here, or no list.
    """
    if shutil.which("apt-cache") is None:
        raise NoUrls("no apt-cache on this machine: give the URLs with --urls FILE, one a line")
    urls = _dump_available()
    if len(urls) < URLS_WANTED and os.geteuid() == 0:
        say(f"apt knows {len(urls)} homepages; refreshing its lists (apt-get update)")
        try:
            subprocess.run(
                ["apt-get", "update", "-qq"],
                capture_output=True,
                check=False,
                timeout=_UPDATE_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            say(f"apt-get update gave no answer within {_UPDATE_SECONDS_MAX} s")
        urls = _dump_available()
    if not urls:
        raise NoUrls("apt's package list is empty: run apt-get update, or give --urls FILE")
    return urls
