"""`tandemq log dump|verify`: a data directory from outside, also beside a running server.

Here: tables, JSON lines and the progress bar. Must not be here: reading files (storage.inspection).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tandemq_server.cli.directories import Opened, progress, time_text
from tandemq_server.cli.output import REFUSED, CommandError, cell, json_line, note, table
from tandemq_server.cli.remote import Json

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A node's data directory.")]
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
    from tandemq_server.storage.inspection import Dump

    with Opened(directory) as disk:
        rows = Dump(disk, first, last, rescue)
        if not as_lines:
            print(_DUMP_COLUMNS.format("lsn", "term", "time", "call", "operations"))
        for row in progress(rows, "reading", rows):
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
    from tandemq_server.storage.inspection import Verification

    with Opened(directory) as disk:
        found = Verification(disk)
        reports = list(progress(found, "checking", found))
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
