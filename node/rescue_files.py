"""Rescue files of a data directory: what was cut off its log, and what of it was put again since.

Here: reading notes with their segments, and the record of replays beside them.
Must not be here: sending anything to a server, printing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack

from model.record import Record
from model.task import NEVER_US
from replication.rescue import (
    ReplayPlan,
    RescuedTask,
    RescueError,
    RescueNote,
    decode_note,
    replay_plan,
)
from storage.disk import RESCUE_PREFIX
from storage.files import FileDisk
from storage.meta import Meta, read_meta
from storage.rescue import read_rescue, rescue_names

NOTE, REPLAYED = ".note", ".replayed"
_UUID_EXT = 2
#: Where the drivers keep what `put` was given, by driver; times in microseconds.
_LAYOUTS = {
    "fifottl": {"ttl": 3, "ttr": 4, "pri": 5},
    "limfifottl": {"ttl": 3, "ttr": 4, "pri": 5},
    "utube": {"utube": 2},
    "utubettl": {"ttl": 3, "ttr": 4, "pri": 5, "utube": 7},
}
_ENDLESS_US = 3_000_000_000_000_000


class NotSendable(Exception):
    """A payload that no connector can be given as it was; str() says why."""


@dataclass(frozen=True, slots=True)
class Rescued:
    """One cut. name: of its note, without directory and ending. files: its segments, by LSN."""

    name: str
    note: RescueNote
    files: tuple[str, ...]

    @property
    def records(self) -> int:
        return self.note.last_lsn - self.note.first_lsn + 1


@dataclass(slots=True)
class Replayed:
    """What earlier replays did. Tasks are (space id, task id).

    put: by the id each has now. open: it was sent, and the answer never written down.
    """

    path: Path
    put: dict[tuple[int, int], int] = field(default_factory=dict)
    open: set[tuple[int, int]] = field(default_factory=set)

    def note(self, task: RescuedTask, new_id: int | None, server: str) -> None:
        """Write down, durably, that a task is about to be put (None) or was put."""
        key = (task.space_id, task.task_id)
        line = {"task": key, "tube": task.tube, "id": new_id, "server": server}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if new_id is None:
            self.open.add(key)
        else:
            self.open.discard(key)
            self.put[key] = new_id

    def refused(self, task: RescuedTask, server: str) -> None:
        """The server certainly did not take it."""
        self.note(task, -1, server)
        del self.put[(task.space_id, task.task_id)]


def load_replayed(directory: Path, name: str) -> Replayed:
    """Raises ValueError for a file that is not one of ours."""
    found = Replayed(directory / (RESCUE_PREFIX + name + REPLAYED))
    if not found.path.exists():
        return found
    for number, line in enumerate(found.path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            value = json.loads(line)
            key, new_id = (int(value["task"][0]), int(value["task"][1])), value["id"]
        except (ValueError, KeyError, TypeError, IndexError):
            raise ValueError(f"{found.path}: line {number} is malformed") from None
        if new_id is None:
            found.open.add(key)
            continue
        found.open.discard(key)
        if new_id >= 0:
            found.put[key] = new_id
    return found


class RescueFiles:
    """The rescue files of a directory, looked at without a lock, also beside a running node."""

    def __init__(self, disk: FileDisk) -> None:
        self._disk = disk
        self._meta: Meta | None = read_meta(disk)

    def cuts(self) -> list[Rescued]:
        """Every cut that has a note, oldest first. Raises RescueError, StorageError."""
        files = rescue_names(self._disk)
        found = []
        for path in self._disk.list():
            if path.startswith(RESCUE_PREFIX) and path.endswith(NOTE):
                try:
                    note, _end = decode_note(self._disk.read(path))
                except RescueError as error:
                    raise RescueError(error.position, f"{path}: {error.reason}") from error
                name = path[len(RESCUE_PREFIX) : -len(NOTE)]
                mine = tuple(file for file in files if _belongs(file, note))
                found.append(Rescued(name, note, mine))
        return found

    def strays(self) -> list[str]:
        """Segments without a note: which tubes their tasks were of is not known."""
        told = {file for cut in self.cuts() for file in cut.files}
        return [file for file in rescue_names(self._disk) if file not in told]

    def records(self, cut: Rescued) -> Iterator[tuple[int, Record]]:
        """(LSN, record) of the cut. Raises StorageError for a damaged file."""
        assert self._meta is not None
        for name in cut.files:
            for header, _frame, records in read_rescue(self._disk, self._meta, name):
                for lsn, record in enumerate(records, header.first_lsn):
                    if cut.note.first_lsn <= lsn <= cut.note.last_lsn:
                        yield lsn, record

    def plan(self, cut: Rescued) -> ReplayPlan:
        """What of the cut may be put again. Raises StorageError, RescueError."""
        records = list(self.records(cut))
        if len(records) != cut.records:
            raise RescueError(0, f"{cut.name}: {len(records)} of {cut.records} records are there")
        return replay_plan(records, cut.note.tubes)


def _belongs(file: str, note: RescueNote) -> bool:
    term, _, lsn = file[len(RESCUE_PREFIX) :].partition(".")[0].partition("-")
    first = int(lsn)
    owner = note.lineage.term_at(first)
    inside = note.first_lsn <= first <= note.last_lsn
    return inside and owner is not None and owner.number == int(term)


def is_buried(task: RescuedTask) -> bool:
    return bool(task.row[1] == "!")


def payload_of(task: RescuedTask) -> object:
    """The payload as a value a connector sends as the same bytes. Raises NotSendable."""

    def ext(code: int, data: bytes) -> object:
        if code == _UUID_EXT and len(data) == 16:
            return UUID(bytes=data)
        raise NotSendable(f"an extension of type {code} in its payload")

    try:
        return msgpack.unpackb(task.payload, ext_hook=ext, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise NotSendable(f"its payload: {error}") from error


def options_of(task: RescuedTask) -> dict[str, Any]:
    """What `put` was given, in its units: seconds, priority, sub-queue. A delay is over by now."""
    found: dict[str, Any] = {}
    for name, place in _LAYOUTS.get(task.driver, {}).items():
        value = task.row[place]
        if name in {"ttl", "ttr"}:
            if value < min(_ENDLESS_US, NEVER_US):
                found[name] = value / 1e6
        elif value not in {0, ""}:
            found[name] = value
    return found
