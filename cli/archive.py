"""`tandemq archive`: a node's log in a folder or an object store, to be restored from to a moment.

Here: rounds, waiting between them, what is told. Must not be here: what is copied and what is let
go (storage.shipping), file systems (archive_store).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandemq.model.units import DAY_US
from tandemq_server.cli.archive_store import ArrowStore
from tandemq_server.cli.directories import Opened, time_text
from tandemq_server.cli.output import REFUSED, CommandError, json_line, note, table
from tandemq_server.cli.remote import Json

if TYPE_CHECKING:
    from tandemq_server.storage.archived import ArchivedLine, ArchiveLine
    from tandemq_server.storage.shipping import Round, Shipping

PANEL = "Node"
#: After rounds that failed one behind the other it is tried again at least this often, in seconds.
LONGEST_PAUSE = 60.0

archive = typer.Typer(
    help="A node's log in a folder or an object store, to be restored from to a moment.",
    no_args_is_help=True,
)
Where = Annotated[
    str,
    typer.Argument(metavar="URL", help="A folder, or s3://, gs://, hdfs://; one for each node."),
]


def add_to(app: typer.Typer) -> None:
    for command in (ship, lines):
        archive.command()(command)
    app.add_typer(archive, name="archive", rich_help_panel=PANEL)


def ship(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A node's data directory.")],
    url: Where,
    every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0.1, help="Ship again at this interval; otherwise once."
        ),
    ] = None,
    keep_days: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0, help="Delete what is needed only for older moments."),
    ] = None,
    as_lines: Json = False,
) -> None:
    """Copy what is new in a data directory, also one a node is serving from, to an archive.

    All that was written before a round began is in the archive when it ends. Each file is
    verified before it is shipped and read back after it. Restore with `tandemq restore URL DIR`.
    """
    from tandemq.model.errors import StorageError
    from tandemq_server.storage.shipping import Shipping

    keep_us = None if keep_days is None else int(keep_days * DAY_US)
    store = ArrowStore(url)
    with Opened(directory) as source:
        shipping, failures = Shipping(source, store), 0
        while True:
            began = time.monotonic()
            try:
                _tell(_round(shipping, keep_us), every is not None, as_lines)
                failures = 0
            except StorageError as error:
                if every is None:
                    raise
                failures += 1
                note(f"not shipped: {error}")
            if every is None:
                return
            pause = every if not failures else min(every * 2**failures, max(every, LONGEST_PAUSE))
            time.sleep(max(0.0, began + pause - time.monotonic()))


def _round(shipping: Shipping, keep_us: int | None) -> Round:
    return shipping.round(time.time_ns() // 1000, keep_us)


def _tell(done: Round, again: bool, as_lines: bool) -> None:
    for problem in done.problems:
        note(f"left out: {problem}")
    if again and not done.files and not done.let_go and not done.new_line:
        return
    if as_lines:
        told = _told(done.line)
        json_line({**told, "shipped_files": done.files, "shipped_bytes": done.bytes})
        return
    if done.new_line:
        note(f"begins {done.line.name}: {done.new_line}")
    gone = f", {done.let_go} files let go" if done.let_go else ""
    print(
        f"{done.line.name}: LSN {done.line.first_lsn} to {done.line.newest.last_lsn} "
        f"({time_text(done.line.newest.time_us)}), {done.files} files, {done.bytes} bytes "
        f"shipped and read back{gone}",
        flush=True,
    )


def lines(url: Where, as_lines: Json = False) -> None:
    """List what an archive holds: from and to which moment each line can be restored."""
    from tandemq.model.errors import StorageError
    from tandemq_server.storage.archived import lines_of

    try:
        found = lines_of(ArrowStore(url))
    except StorageError as error:
        raise CommandError(str(error), REFUSED) from None
    if as_lines:
        for line in found:
            json_line(_told(line))
        return
    if not found:
        note(f"{url}: nothing was shipped there")
        return
    rows = [
        (
            line.name,
            f"{line.first_lsn}..{line.newest.last_lsn}",
            time_text(line.first_time_us) if line.first_time_us else "the beginning",
            time_text(line.newest.time_us),
            str(len(line.files)),
            str(sum(one.size for one in line.files.values())),
        )
        for line in found
    ]
    table(("line", "LSN", "from", "to", "files", "bytes"), rows)


@contextmanager
def opened_line(
    url: str, name: str | None, until_lsn: int | None, until_us: int | None
) -> Iterator[ArchivedLine]:
    """The line of an archive that reaches back to a moment, as a backup to restore from.

    Raises `CommandError`, also for what the archive's reader says meanwhile.
    """
    from tandemq.model.errors import StorageError
    from tandemq_server.storage.archived import ArchivedLine, line_for, lines_of

    store = ArrowStore(url)
    try:
        found = lines_of(store)
        if name is not None:
            found = [line for line in found if line.name == name]
        line = line_for(found, until_lsn, until_us)
        if line is None:
            what = f"no line {name}" if name is not None and not found else "no line that old"
            raise CommandError(f"{url}: {what}", REFUSED, f"tandemq archive lines {url}")
        yield ArchivedLine(store, line)
    except StorageError as error:
        raise CommandError(str(error), REFUSED) from None


def is_archive(source: str) -> bool:
    """Whether it is one, not the directory of a backup."""
    return "://" in source or any(Path(source).glob("line-*/manifest-*.json"))


def _told(line: ArchiveLine) -> dict[str, object]:
    return {
        "line": line.name,
        "first_lsn": line.first_lsn,
        "last_lsn": line.newest.last_lsn,
        "commit_lsn": line.commit_lsn,
        "last_time": time_text(line.newest.time_us),
        "shipped": time_text(line.shipped_us),
        "files": len(line.files),
        "bytes": sum(one.size for one in line.files.values()),
    }
