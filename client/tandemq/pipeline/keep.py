"""Keeping what `history` and `follow` write: many small files become few, old days go.

What is merged is written aside, then noted down, then takes the place of what it was made of: cut
short anywhere, the next run finishes it. No Spark here.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tandemq.model.units import MIB
from tandemq.spark.parts import durable, put_text

#: What each job leaves in its folder, and how the folders of its runs begin.
HISTORY, CHANGES = ("history.json", "run="), ("tandemq-changes.json", "batch=")
ASIDE, NOTE = "_keeping", "_keeping.json"
FILES = "[!_.]*.parquet"
#: Folders are merged up to so many bytes of files; what is as large stays as it is.
MERGED_BYTES = 64 * MIB


def run(out: str, days: int | None = None, now: datetime.datetime | None = None) -> dict[str, int]:
    """Merge what is small, remove what is older than `days`. Counts of files before and after.

    Must not run beside another of its kind, or beside `history` on the same folder; `follow` may
    go on, its newest batch is left alone. Raises `ValueError` for a folder that is neither's.
    """
    home = Path(out)
    tables, newest = _tables(home)
    _finish(home)
    before = _count(tables)
    removed = 0
    if days is not None:
        moment = now or datetime.datetime.now(datetime.UTC)
        removed = sum(_expire(table, moment - datetime.timedelta(days), newest) for table in tables)
    for table in tables:
        for names in _groups([path for path in _runs(table) if path.name < newest]):
            _merge(home, table, names)
    return {"files_before": before, "files_removed": removed, "files_after": _count(tables)}


def _tables(home: Path) -> tuple[list[Path], str]:
    """(folders that have runs, the name of the first run that is not to be touched)."""
    if (home / HISTORY[0]).exists():
        # A run that is under way has a later name.
        last = json.loads((home / HISTORY[0]).read_text())["name"]
        return [home / "tasks", home / "deliveries"], last + "~"
    if (home / CHANGES[0]).exists():
        return [home], max((path.name for path in _runs(home)), default="")
    raise ValueError(f"{home} was written neither by history nor by follow")


def _runs(table: Path) -> list[Path]:
    return sorted(one for start in (HISTORY[1], CHANGES[1]) for one in table.glob(f"{start}*"))


def _count(tables: Sequence[Path]) -> int:
    return sum(1 for table in tables for one in _runs(table) for _ in one.rglob(FILES))


def _expire(table: Path, oldest: datetime.datetime, newest: str) -> int:
    """Remove what ended before: days of a history, batches of changes. Files removed."""
    removed = 0
    for path in _runs(table):
        if path.name >= newest:
            continue
        days = list(path.glob("date=*"))
        gone = [one for one in days if _day(one) < oldest.date()]
        if not days and _last_time(path) < oldest:
            gone = [path]
        for folder in gone:
            removed += sum(1 for _ in folder.rglob(FILES))
            shutil.rmtree(folder)
    return removed


def _day(folder: Path) -> datetime.date:
    """Of a folder of one date; tasks whose put the log did not have any more have none."""
    try:
        return datetime.date.fromisoformat(folder.name.partition("=")[2])
    except ValueError:
        return datetime.date.max


def _last_time(batch: Path) -> datetime.datetime:
    """Of the records of a batch, by what its writer noted of the column's bounds."""
    found = [datetime.datetime.min.replace(tzinfo=datetime.UTC)]
    for file in batch.glob(FILES):
        told = pq.read_metadata(file)
        column = told.schema.names.index("time")
        groups = (told.row_group(group) for group in range(told.num_row_groups))
        found += [group.column(column).statistics.max for group in groups]
    return max(found)


def _groups(runs: Sequence[Path]) -> list[list[str]]:
    """Names of runs that follow each other and are to become one."""
    found: list[list[str]] = []
    room = 0
    for path in runs:
        size = sum(file.stat().st_size for file in path.rglob(FILES))
        if not found or size > room:
            found.append([])
            room = MERGED_BYTES
        found[-1].append(path.name)
        room -= size
    return [names for names in found if len(names) > 1]


def _merge(home: Path, table: Path, names: Sequence[str]) -> None:
    """Runs to one, which has the last one's name; what is in folders of one name, in one file."""
    places: dict[Path, list[Path]] = {}
    for name in names:
        for file in sorted((table / name).rglob(FILES)):
            places.setdefault(file.parent.relative_to(table / name), []).append(file)
    whole = home / ASIDE
    whole.mkdir()
    for place, files in places.items():
        rows = pa.concat_tables(
            [pq.ParquetFile(file).read() for file in files], promote_options="default"
        )
        (whole / place).mkdir(parents=True, exist_ok=True)
        file = whole / place / "part-00000.zstd.parquet"
        pq.write_table(rows, file, compression="zstd", store_schema=False)
        durable(file)
        durable(file.parent)
    durable(whole)
    told = {"table": str(table.relative_to(home)), "names": list(names)}
    put_text(home / NOTE, json.dumps(told) + "\n")
    _finish(home)


def _finish(home: Path) -> None:
    """Put what was merged and noted in its place; what was not noted yet goes."""
    whole, note = home / ASIDE, home / NOTE
    if not note.exists():
        shutil.rmtree(whole, ignore_errors=True)
        return
    told: dict[str, Any] = json.loads(note.read_text())
    table, names = home / told["table"], told["names"]
    for name in names if whole.exists() else names[:-1]:
        shutil.rmtree(table / name, ignore_errors=True)
    if whole.exists():
        os.replace(whole, table / names[-1])
    durable(table)
    note.unlink()
