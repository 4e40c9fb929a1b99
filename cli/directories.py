"""Data directories at a terminal: opened with errors in one line, read with a progress bar.

Here: what the commands on files share. Must not be here: a command; reading files (storage).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tandemq.model.units import MIB, SECOND_US
from tandemq_server.cli.output import REFUSED, CommandError

if TYPE_CHECKING:
    from tandemq_server.storage.files import FileDisk

T = TypeVar("T")
#: Rows, or bytes, looked at between two updates of the progress bar.
_STEP_ROWS, _STEP_BYTES = 1000, MIB


class Sizes(Protocol):
    """What a progress bar asks for."""

    total_bytes: int
    done_bytes: int


class Opened:
    """The directory for looking at, without a lock; what goes wrong is one line."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __enter__(self) -> FileDisk:
        from tandemq.model.errors import StorageError
        from tandemq_server.storage.files import FileDisk

        try:
            self.disk = FileDisk(self.directory, read_only=True)
        except StorageError as error:
            raise CommandError(str(error), REFUSED) from None
        return self.disk

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from tandemq.model.errors import StorageError

        self.disk.release()
        if isinstance(error, StorageError):
            raise CommandError(str(error), REFUSED) from None


def progress(rows: Iterable[T], what: str, sizes: Sizes) -> Iterator[T]:
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
        shown = 0
        for number, row in enumerate(rows):
            if number % _STEP_ROWS == 0 or sizes.done_bytes - shown >= _STEP_BYTES:
                shown = sizes.done_bytes
                bar.update(task, completed=sizes.done_bytes, total=sizes.total_bytes or None)
            yield row


def time_text(time_us: int) -> str:
    """UTC, or the number itself when it is no date."""
    try:
        moment = datetime.datetime.fromtimestamp(time_us / SECOND_US, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_us)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")
