"""Planning a read of log directories and archives, without decoding more than must be.

Every part of a log knows the names of the tubes. No Spark here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from tandemq.log.blocks import decode_block, unpack
from tandemq.log.meta import META_NAME, Meta, read_commit, read_meta
from tandemq.log.rescue import rescue_names
from tandemq.log.segment import FOOTER_MAGIC, HEADER_MAGIC, SEGMENT_HEADER_SIZE, segment_names
from tandemq.log.snapshot import CATALOGUE_MAGIC, SnapshotReader, snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.record import CREATE, FRAME_MAGIC, FrameError
from tandemq.model.units import MIB
from tandemq.spark.disk import ArrowDisk, named
from tandemq.spark.scan import Segment, Spaces, scan

#: Marks a folder of Parquet parts, each named after the node and the LSNs it holds.
ARCHIVE_MARK = "tandemq-archive.json"
ARCHIVE_PART = re.compile(r"^node=([0-9a-f-]{36})/lsn=(\d{20})-(\d{20})/[^/_.][^/]*\.parquet$")
#: Beside them, below the node: its tubes, so that a trimmed log still knows their names.
ARCHIVE_SPACES = "_spaces.json"


@dataclass
class Part:
    """What one Spark partition reads: frames of a segment, a Parquet part, or a damage to tell.

    start: (LSN, byte) of the first frame; end: byte behind the last. first_lsn/last_lsn: records
    outside are dropped.
    """

    path: str
    name: str
    start: tuple[int, int] | None = None
    end: int = 0
    first_lsn: int = 0
    last_lsn: int = 2**63 - 1
    rescue: bool = False
    meta: Meta | None = None
    spaces: Spaces = field(default_factory=dict)
    damage: tuple[int, str] | None = None
    archive: bool = False
    retracted: bool = False


def node_name(node: bytes) -> str:
    return str(UUID(bytes=node))


def meta_of(disk: ArrowDisk, names: list[str]) -> Meta:
    """Identity of the directory, or of the first segment where only segments were copied."""
    if META_NAME in names:
        meta = read_meta(disk)
        assert meta is not None
        return meta
    for name in names:
        if name.endswith(".wal"):
            try:
                value = unpack(
                    decode_block(disk.read(name, 0, SEGMENT_HEADER_SIZE), 0, HEADER_MAGIC)
                )
                return Meta(value["cluster"], value["node"], 0)
            except (FrameError, KeyError, TypeError) as error:
                raise StorageError(f"{disk.where}/{name}", 0, f"segment header: {error}") from error
    raise StorageError(disk.where, 0, "is neither a data directory nor an archive")


def spaces_of_snapshots(disk: ArrowDisk, meta: Meta) -> Spaces:
    """Tubes of the newest snapshot that can be read: those older segments may have created."""
    for name in reversed(snapshot_names(disk)):
        try:
            reader = SnapshotReader(disk, name, meta.cluster)
            for magic, _, body in reader.blocks():
                if magic == CATALOGUE_MAGIC:
                    return {op[1]: (op[2], op[3]) for op in unpack(body or b"") if op[0] == CREATE}
        except (StorageError, FrameError):
            continue
    return {}


@dataclass
class LogQuery:
    """What a query asks for: bounds in LSNs and µs, both inclusive."""

    first_lsn: int = 0
    last_lsn: int = 2**63 - 1
    first_us: int = 0
    last_us: int = 2**63 - 1
    rescue: bool = False
    until_commit: bool = False
    permissive: bool = False
    split_bytes: int = 16 * MIB


def plan(paths: list[str], wanted: LogQuery) -> list[Part]:
    """Parts of all directories. A live segment's records that an archive holds are left out.

    Raises `StorageError` for what cannot be read, unless permissive: then it is a part of its own.
    """
    archived: dict[str, int] = {}
    tubes: dict[str, Spaces] = {}
    parts: list[Part] = []
    live: list[tuple[ArrowDisk, list[str]]] = []
    for path in paths:
        disk = ArrowDisk(path)
        names = disk.list()
        if ARCHIVE_MARK in names:
            parts += _archive_parts(disk, names, wanted, archived)
            tubes |= archive_spaces(disk, names)
        else:
            live.append((disk, names))
    for disk, names in live:
        try:
            parts += _log_parts(disk, names, wanted, archived, tubes)
        except StorageError as error:
            if not wanted.permissive:
                raise named(disk, error) from error
            parts.append(Part(disk.where, error.file, damage=(error.position, error.reason)))
    return parts


def _archive_parts(
    disk: ArrowDisk, names: list[str], wanted: LogQuery, archived: dict[str, int]
) -> list[Part]:
    mark = json.loads(disk.read(ARCHIVE_MARK))
    if mark.get("version") != 1:
        raise StorageError(
            f"{disk.where}/{ARCHIVE_MARK}", 0, f"archive version {mark.get('version')} is unknown"
        )
    parts = []
    for name in names:
        if (match := ARCHIVE_PART.match(name)) is None:
            continue
        node, first, last = match[1], int(match[2]), int(match[3])
        archived[node] = max(archived.get(node, 0), last)
        if last >= wanted.first_lsn and first <= wanted.last_lsn:
            bounds = (wanted.first_lsn, wanted.last_lsn)
            parts.append(Part(disk.where, name, None, 0, *bounds, archive=True))
    return parts


def archive_spaces(disk: ArrowDisk, names: list[str]) -> dict[str, Spaces]:
    """Tubes by space id, of each node an archive has records of."""
    found: dict[str, Spaces] = {}
    for name in names:
        if name.endswith("/" + ARCHIVE_SPACES):
            node = name.split("/")[0].removeprefix("node=")
            spaces = json.loads(disk.read(name)).items()
            found[node] = {int(space): (tube[0], tube[1]) for space, tube in spaces}
    return found


def _log_parts(
    disk: ArrowDisk,
    names: list[str],
    wanted: LogQuery,
    archived: dict[str, int],
    tubes: dict[str, Spaces],
) -> Iterator[Part]:
    meta = meta_of(disk, names)
    spaces = {**tubes.get(node_name(meta.node), {}), **spaces_of_snapshots(disk, meta)}
    after = archived.get(node_name(meta.node), 0)
    last_lsn = wanted.last_lsn
    if wanted.until_commit:
        commit, problem = read_commit(disk)
        if problem is not None:
            raise StorageError("commit", 0, problem)
        last_lsn = min(last_lsn, commit)
    first_lsn = max(wanted.first_lsn, after + 1)
    due: int | None = after + 1 if after else None
    segments = segment_names(disk)
    files = [(name, False) for name in segments]
    if wanted.rescue:
        files += [(name, True) for name in rescue_names(disk)]
    if node_name(meta.node) in tubes:
        # What is archived whole is not even looked at: the archive knows the tubes it made.
        behind = [int(name.partition(".")[0]) for name in segments[1:]]
        files = files[sum(first <= after + 1 for first in behind) :]
    for name, rescue in files:
        try:
            found = scan(disk, meta, name, spaces, wanted.split_bytes, rescue)
            if not rescue:
                if not found.sealed and name != segments[-1]:
                    raise StorageError(name, found.valid_end, "ends without its footer")
                if due is not None and found.first_lsn > due:
                    text = f"LSN {due} up to {found.first_lsn - 1} are missing"
                    yield from _refused(disk, StorageError(name, 0, text), wanted)
                due = found.last_lsn + 1
        except StorageError as error:
            if name == segments[-1] and disk.size(name) <= SEGMENT_HEADER_SIZE:
                continue  # a header torn in the making: there is no record yet
            due = None
            yield from _refused(disk, error, wanted)
            continue
        if found.last_lsn < found.first_lsn or not _asked_for(found, wanted):
            continue
        low = 0 if rescue else first_lsn
        yield from _split(disk, meta, found, spaces, (low, last_lsn), rescue)


def _refused(disk: ArrowDisk, error: StorageError, wanted: LogQuery) -> Iterator[Part]:
    if not wanted.permissive:
        raise named(disk, error)
    yield Part(disk.where, error.file, damage=(error.position, error.reason))


def _asked_for(segment: Segment, wanted: LogQuery) -> bool:
    if segment.last_lsn < wanted.first_lsn or segment.first_lsn > wanted.last_lsn:
        return False
    if segment.times is None:
        return True
    return segment.times[1] >= wanted.first_us and segment.times[0] <= wanted.last_us


def _split(
    disk: ArrowDisk,
    meta: Meta,
    segment: Segment,
    spaces: Spaces,
    bounds: tuple[int, int],
    rescue: bool,
) -> Iterator[Part]:
    first, last = bounds
    ends = [*segment.marks[1:], (segment.last_lsn + 1, segment.valid_end)]
    for start, (next_lsn, end) in zip(segment.marks, ends, strict=True):
        if next_lsn > first and start[0] <= last:
            yield Part(disk.where, segment.name, start, end, first, last, rescue, meta, spaces)


__all__ = ["ARCHIVE_MARK", "FOOTER_MAGIC", "FRAME_MAGIC", "ArrowDisk", "Part", "LogQuery", "plan"]
