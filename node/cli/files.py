"""`tandemq log dump|verify`: a data directory from outside, also beside a running server.

Here: tables, JSON lines and the progress bar. Must not be here: reading files (storage.inspect).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from node.cli.output import REFUSED, CommandError, cell, json_line, note, table
from node.cli.remote import Json

if TYPE_CHECKING:
    from storage.files import FileDisk
    from storage.inspect import Dump, Verification

T = TypeVar("T")
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A node's data directory.")]
#: Rows looked at between two updates of the progress bar.
_STEP_ROWS = 1000
#: Columns of `dump` in front of the operations.
_DUMP_COLUMNS = "{:>12} {:>5} {:26} {:12} {}"


def add_to(app: typer.Typer) -> None:
    log = typer.Typer(no_args_is_help=True, help="Look at a node's log and check it.")
    log.command()(dump)
    log.command()(verify)
    app.add_typer(log, name="log", rich_help_panel="Node")


def dump(
    directory: Directory,
    first: Annotated[int, typer.Option("--from", metavar="LSN", min=0, help="First record.")] = 0,
    last: Annotated[
        int | None, typer.Option("--to", metavar="LSN", min=0, help="Last record.")
    ] = None,
    rescue: Annotated[
        str | None, typer.Option("--rescue", metavar="NAME", help="A rescue file instead.")
    ] = None,
    as_lines: Json = False,
) -> None:
    """Print the log's records, oldest first. Exit code 1 when some cannot be read."""
    from storage.inspect import Dump

    with _Disk(directory) as disk:
        rows = Dump(disk, first, last, rescue)
        if not as_lines:
            print(_DUMP_COLUMNS.format("lsn", "term", "time", "call", "operations"))
        for row in _progress(rows, "reading", rows):
            if as_lines:
                json_line({**row._asdict(), "time": time_text(row.time_us)})
            else:
                ops = " ".join(cell(op) for op in row.ops)
                print(
                    _DUMP_COLUMNS.format(row.lsn, row.term, time_text(row.time_us), row.kind, ops)
                )
    if rows.problems:
        raise CommandError("\n".join(rows.problems), REFUSED, "`tandemq log verify` checks it all")


def verify(directory: Directory, as_lines: Json = False) -> None:
    """Check every byte of a data directory. Exit code 1 when anything is damaged."""
    from storage.inspect import Verification

    with _Disk(directory) as disk:
        found = Verification(disk)
        reports = list(_progress(found, "checking", found))
    if as_lines:
        for report in reports:
            json_line({name: getattr(report, name) for name in report.__slots__})
        json_line(
            {
                "ok": found.ok,
                "first_lsn": found.first_lsn,
                "last_lsn": found.last_lsn,
                "snapshot_lsn": found.snapshot_lsn,
                "commit_lsn": found.commit_lsn,
                "problems": found.problems,
                "notes": found.notes,
            }
        )
    else:
        columns = ("file", "state", "bytes", "first", "last", "frames", "records")
        rows = [
            (one.name, one.state, one.size, one.first_lsn, one.last_lsn, one.frames, one.records)
            for one in reports
        ]
        table(columns, rows, right=columns[2:])
        for text in found.notes:
            note(text)
    if not found.ok:
        hint = "restore the file from the peer or a copy; nothing was changed here"
        raise CommandError("\n".join(found.problems), REFUSED, hint)
    if not as_lines:
        print(f"ok: LSN {found.first_lsn} to {found.last_lsn}, snapshot {found.snapshot_lsn}")


class _Disk:
    """The directory for looking at, without a lock; what goes wrong is one line."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __enter__(self) -> FileDisk:
        from model.errors import StorageError
        from storage.files import FileDisk

        try:
            self.disk = FileDisk(self.directory, read_only=True)
        except StorageError as error:
            raise CommandError(str(error), REFUSED) from None
        return self.disk

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from model.errors import StorageError

        self.disk.release()
        if isinstance(error, StorageError):
            raise CommandError(str(error), REFUSED) from None


def _progress(rows: Iterable[T], what: str, sizes: Dump | Verification) -> Iterator[T]:
    """`rows`, with a bar over their bytes on a terminal's standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=sizes.total_bytes or None)
        for number, row in enumerate(rows):
            if number % _STEP_ROWS == 0:
                bar.update(task, completed=sizes.done_bytes)
            yield row


def time_text(time_us: int) -> str:
    """UTC, or the number itself when it is no date."""
    try:
        moment = datetime.datetime.fromtimestamp(time_us / 1e6, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_us)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")
