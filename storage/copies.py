"""What backups and restored directories share: the manifest, copying, reading back, describing.

A backup is a snapshot, the segments behind it and `backup.json`, which says how far they reach:
so a copy that lost its end is told from a whole one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from tandemq.log.disk import RESCUE_PREFIX, SUFFIX_IN_PROGRESS, Disk, ReadDisk, append_all
from tandemq.log.meta import Meta
from tandemq.log.rescue import all_rescued
from tandemq.log.segment import SegmentInfo, SegmentReader, segment_names
from tandemq.log.snapshot import SnapshotReader, snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.record import decode_body
from tandemq.model.units import MIB
from tandemq_server.storage.inspection import Verification
from tandemq_server.storage.mend import MISSING_NAME

MANIFEST_NAME = "backup.json"
MANIFEST_VERSION = 1
COPY_BYTES = MIB


@dataclass(slots=True)
class Manifest:
    """What a backup holds. Ids are hex, times microseconds; `files` maps names to sizes.

    first_lsn: the earliest point it can be restored to. term: number of the last record's term.
    """

    cluster: str
    node: str
    created_us: int
    first_lsn: int = 0
    last_lsn: int = 0
    commit_lsn: int = 0
    term: int = 0
    last_time_us: int = 0
    files: dict[str, int] = field(default_factory=dict)
    version: int = MANIFEST_VERSION

    @property
    def size(self) -> int:
        return sum(self.files.values())


def read_manifest(disk: ReadDisk) -> Manifest:
    """What a backup says of itself. Raises `StorageError` when it is none, or incomplete."""
    if MANIFEST_NAME not in disk.list():
        raise StorageError(
            MANIFEST_NAME, 0, f"is missing: {disk.where} is no backup, or an unfinished one"
        )
    try:
        value = json.loads(disk.read(MANIFEST_NAME))
        if value["version"] > MANIFEST_VERSION:
            raise StorageError(
                MANIFEST_NAME, 0, f"version {value['version']} is newer than {MANIFEST_VERSION}"
            )
        manifest = Manifest(**value)
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(MANIFEST_NAME, 0, f"is not what a backup writes: {error}") from None
    there = set(disk.list())
    for name, size in manifest.files.items():
        if name not in there or disk.size(name) != size:
            raise StorageError(name, 0, f"is missing or is not of {size} bytes")
    return manifest


class SourceChanged(Exception):
    """The node removed or cut a file while it was copied: what we have fits nothing."""


class Copying:
    """Bytes from one disk to another, counted."""

    def __init__(self, source: ReadDisk, target: Disk) -> None:
        self.source = source
        self.target = target
        self.total_bytes = self.done_bytes = 0
        self.notes: list[str] = []
        self._made: list[str] = []

    def _fits(self, files: dict[str, int]) -> None:
        """Raises `StorageError` when the target has no room."""
        needed, free = sum(files.values()), self.target.free()
        if needed > free:
            raise StorageError(
                self.target.where, 0, f"{needed} bytes are needed, {free} are free there"
            )

    def _copy(self, name: str, size: int) -> Iterator[str]:
        """The first `size` bytes of a file, durable at the end; its name after each piece."""
        handle = self.target.create(name)
        self._made.append(name)
        try:
            position = 0
            while position < size:
                data = self.source.read(name, position, min(COPY_BYTES, size - position))
                if not data:
                    raise SourceChanged(name)
                append_all(self.target, handle, data)
                position += len(data)
                self.done_bytes += len(data)
                yield name
            self.target.sync(handle)
        finally:
            self.target.close(handle)

    def _verified(self, meta: Meta) -> Iterator[str]:
        """Read everything back from the device. Raises `StorageError` for the first damage."""
        for name in (*snapshot_names(self.target), *segment_names(self.target)):
            self.target.settle(name)
        for name in beside(self.target):
            self.target.settle(name)
        checked = Verification(self.target, meta)
        rescued: set[str] = set()
        before = self.done_bytes
        for report in checked:
            self.done_bytes = before + checked.done_bytes
            yield report.name
            if report.problem is None:
                continue
            if not report.name.startswith(RESCUE_PREFIX):
                raise StorageError(report.name, report.size, report.problem)
            # The log is whole without it; what is left of it is worth keeping.
            rescued.add(report.problem)
            self.notes.append(f"{report.problem}: copied as it is")
        if problems := [text for text in checked.problems if text not in rescued]:
            raise StorageError(self.target.where, 0, problems[0])

    def _undo(self) -> None:
        """Leave the target as it was: empty."""
        names = self.target.list()
        for made in reversed(self._made):
            for name in (made, made + SUFFIX_IN_PROGRESS):
                if name in names:
                    names.remove(name)
                    self.target.remove(name)
        self._made.clear()


def segment_infos(disk: ReadDisk, meta: Meta) -> Iterator[SegmentInfo]:
    """All segments, sealed ones by their footers."""
    for name in segment_names(disk):
        reader = SegmentReader(disk, name, meta)
        footer = reader.peek_footer()
        if footer is not None:
            reader.skip(footer)
        else:
            for header, body in reader.frames():
                times = decode_body(body, header.count)
                reader.info.first_time_us = reader.info.first_time_us or times[0][0]
                reader.info.last_time_us = times[-1][0]
        yield reader.info


def described(disk: Disk, meta: Meta, created_us: int) -> Manifest:
    """What verified files hold."""
    found = Manifest(meta.cluster.hex(), meta.node.hex(), created_us, first_lsn=1)
    snapshots = snapshot_names(disk)
    if snapshots:
        found.first_lsn = end_lsn(snapshots[0])
        found.last_lsn = end_lsn(snapshots[-1])
    ahead = [i for i in segment_infos(disk, meta) if i.records and i.last_lsn > found.last_lsn]
    if ahead:
        newest = ahead[-1]
        found.last_lsn, found.term = newest.last_lsn, newest.term.number
        found.last_time_us = newest.last_time_us
    elif snapshots:
        reader = SnapshotReader(disk, snapshots[-1], meta.cluster)
        for _ in reader.blocks():
            pass
        assert reader.end is not None
        found.last_time_us = reader.end.time_us
        found.term = reader.lineage[-1].number if reader.lineage else 0
    found.files = {n: disk.size(n) for n in (*snapshots, *segment_names(disk))}
    return found


def beside(disk: ReadDisk) -> list[str]:
    """What goes with snapshots and log as it is: rescue files, and what was there once."""
    return all_rescued(disk) + [name for name in disk.list() if name == MISSING_NAME]


def end_lsn(snapshot: str) -> int:
    return int(snapshot.partition(".")[0])
