"""`tandemq backup` and `tandemq restore`: a data directory copied while in use, and put back.

Here: directories, progress, what to know afterwards. Must not be here: copying (storage.backup).
"""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandemq.model.units import SECOND_US
from tandemq_server.cli.cluster import Node, admin_of
from tandemq_server.cli.directories import Opened, progress, time_text
from tandemq_server.cli.output import REFUSED, USAGE, CommandError, json_line, note
from tandemq_server.cli.remote import Json
from tandemq_server.cli.shared import given

if TYPE_CHECKING:
    from tandemq.log.disk import ReadDisk
    from tandemq_server.storage.copies import Manifest
    from tandemq_server.storage.files import FileDisk

#: What a directory may hold and still be empty: made by the file system or by us.
_NOTHING = frozenset({"lost+found", "lock"})

Source = Annotated[Path, typer.Argument(metavar="DIR", help="A node's data directory.")]
Target = Annotated[Path, typer.Argument(metavar="BACKUP", help="A directory, empty or new.")]


def add_to(app: typer.Typer) -> None:
    for command in (backup, restore):
        app.command(rich_help_panel="Node")(command)


@given(node=admin_of)
def backup(
    directory: Source,
    target: Target,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Let the node (--admin) write a snapshot first.")
    ] = False,
    history: Annotated[
        bool,
        typer.Option("--history", help="Also older snapshots and the whole log, for --until-..."),
    ] = False,
    *,
    node: Node,
    as_lines: Json = False,
) -> None:
    """Copy a data directory, also one a node is serving from. Everything is verified.

    The copy holds all that was acknowledged before it began. `tandemq log` understands it.
    """
    from tandemq_server.storage.backup import Backup

    if snapshot:
        with node as client:
            note(f"snapshot of LSN {client.snapshot()['lsn']} written")
    with Opened(directory) as source, _empty(target) as disk:
        run = Backup(source, disk, time.time_ns() // 1000, history)
        for _ in progress(run, "copying", run):
            pass
    for text in run.notes:
        note(text)
    assert run.manifest is not None
    _tell_backup(run.manifest, target, as_lines)


def _tell_backup(manifest: Manifest, target: Path, as_lines: bool) -> None:
    if as_lines:
        json_line({"backup": str(target), **_told(manifest)})
        return
    print(
        f"{target}: LSN {manifest.last_lsn} of term {manifest.term} "
        f"({time_text(manifest.last_time_us)}), {len(manifest.files)} files, "
        f"{manifest.size} bytes, verified"
    )
    print(f"{target}: can be restored to any point from LSN {manifest.first_lsn} on")


def restore(
    source: Annotated[
        str,
        typer.Argument(
            metavar="BACKUP", help="What `backup` made, or `archive ship`: folder or URL."
        ),
    ],
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The new data directory, empty or not there.")
    ],
    until_lsn: Annotated[
        int | None,
        typer.Option(metavar="LSN", min=1, help="Restore up to this record."),
    ] = None,
    until_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Restore up to this moment, such as 2026-11-21T10:00:00 (UTC)."
        ),
    ] = None,
    line: Annotated[
        str | None,
        typer.Option(
            metavar="LINE", help="Of an archive: use this line, not the newest that fits."
        ),
    ] = None,
    as_lines: Json = False,
) -> None:
    """Make an empty directory a data directory out of a backup or an archive; all is verified.

    With --until-lsn or --until-time as of an earlier moment.
    """
    from tandemq_server.cli.archive import is_archive, opened_line
    from tandemq_server.storage.restore import Restore

    until_us = _time_us(until_time) if until_time is not None else None
    if is_archive(source):
        opened: AbstractContextManager[ReadDisk] = opened_line(source, line, until_lsn, until_us)
    elif line is not None:
        raise CommandError(f"--line: {source} is no archive", USAGE)
    else:
        opened = Opened(Path(source))
    with opened as kept, _empty(directory) as disk:
        run = Restore(kept, disk, until_lsn, until_us)
        for _ in progress(run, "restoring", run):
            pass
    left_out = run.manifest.last_lsn - run.last_lsn
    if as_lines:
        json_line(
            {
                "directory": str(directory),
                "last_lsn": run.last_lsn,
                "term": run.term,
                "last_time": time_text(run.last_time_us),
                "left_out_records": left_out,
                "cluster_id": str(uuid.UUID(run.manifest.cluster)),
                "node_id": str(uuid.UUID(run.manifest.node)),
            }
        )
        return
    behind = f", {left_out} records left out" if left_out else ""
    print(
        f"{directory}: LSN {run.last_lsn} of term {run.term} "
        f"({time_text(run.last_time_us)}), verified{behind}"
    )
    note(
        f"it is node {uuid.UUID(run.manifest.node)} of cluster {uuid.UUID(run.manifest.cluster)}: "
        "no other node may run from this directory or a copy of it"
    )
    note(
        f"a peer that kept records behind LSN {run.last_lsn} gives them back to this node if it is "
        "up when this node starts, and refuses to follow if it comes later: start every peer with "
        "an empty directory and read_only: true"
    )


@contextmanager
def _empty(directory: Path) -> Iterator[FileDisk]:
    """A directory of ours to write to, held by its lock. Raises CommandError if it holds a thing.

    One that was made for this and stayed empty is removed again.
    """
    from tandemq.log.disk import RESCUE_PREFIX
    from tandemq.model.errors import StorageError
    from tandemq_server.storage.files import LOCK_NAME, FileDisk

    made = not directory.exists()
    try:
        found = sorted(one.name for one in directory.iterdir()) if not made else []
    except OSError as error:
        raise CommandError(f"{directory}: {error.strerror}", REFUSED) from None
    ours = (RESCUE_PREFIX.rstrip("/"), *_NOTHING)
    rescue = directory / RESCUE_PREFIX
    taken = [name for name in found if name not in ours]
    if rescue.is_dir():
        taken += [RESCUE_PREFIX + one.name for one in rescue.iterdir()]
    if taken:
        raise CommandError(
            f"{directory} is not empty: it has {taken[0]}",
            REFUSED,
            "nothing is overwritten: name another directory, or move this one away",
        )
    try:
        disk = FileDisk(directory)
    except StorageError as error:
        raise CommandError(str(error), REFUSED) from None
    done = False
    try:
        yield disk
        done = True
    finally:
        disk.release()
        (directory / LOCK_NAME).unlink(missing_ok=True)
        if not done and made:
            with suppress(OSError):
                rescue.rmdir()
                directory.rmdir()


def _time_us(text: str) -> int:
    """Microseconds since 1970 of ISO 8601, taken as UTC unless it says otherwise."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--until-time: {text} is not a time, such as 2026-11-21T10:00:00", USAGE
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * SECOND_US)


def _told(manifest: Manifest) -> dict[str, object]:
    told = asdict(manifest)
    told["created"] = time_text(told.pop("created_us"))
    told["last_time"] = time_text(told.pop("last_time_us"))
    return {**told, "bytes": manifest.size}
