"""`format("tandemq_log")` as a stream: a growing directory, followed over rolls and rewinds.

An offset is a place in a lineage: the id of a term and an LSN. Where the log was rewound behind an
offset, what was emitted since the fork is read back from the rescue files and emitted once more
with `retracted` true; then the winning lineage follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tandemq.log.disk import RESCUE_PREFIX
from tandemq.log.meta import Meta, read_commit
from tandemq.log.segment import SEGMENT_HEADER_SIZE
from tandemq.model.errors import StorageError
from tandemq.model.units import KIB, MIB
from tandemq.spark import options as opt
from tandemq.spark.disk import ArrowDisk, named
from tandemq.spark.logs import Part, meta_of, spaces_of_snapshots
from tandemq.spark.scan import Segment, Spaces, scan
from tandemq.spark.source import LogPartition, LogReading

#: Frames are found from marks this many bytes apart.
MARK_BYTES = 256 * KIB
#: A micro-batch is one segment's piece more often than not: in parts of splitBytes one core would
#: read and write it all.
PART_BYTES_MAX = 4 * MIB

Offset = dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """Records first..last of one file, all of one term."""

    segment: Segment
    first: int
    last: int

    @property
    def term_id(self) -> bytes:
        return bytes(self.segment.term.id)


class Files:
    """Segments and rescue files of a directory; what does not change is looked at once."""

    def __init__(self, path: str) -> None:
        self.disk = ArrowDisk(path)
        self.meta: Meta | None = None
        self.spaces: Spaces = {}
        self.known: dict[str, tuple[int, Segment]] = {}
        self.live: list[Segment] = []
        self.rescued: list[Segment] = []

    def refresh(self) -> None:
        """Look at the directory again. Raises `StorageError` for what cannot be read."""
        names = self.disk.list()
        if self.meta is None:
            self.meta = meta_of(self.disk, names)
            self.spaces = spaces_of_snapshots(self.disk, self.meta)
        logs = [name for name in names if name.endswith(".wal")]
        self.live, self.rescued = [], []
        own = [name for name in logs if "/" not in name]
        for name in logs:
            rescue = name.startswith(RESCUE_PREFIX)
            if "/" in name and not rescue:
                continue
            newest = not rescue and name == own[-1]
            found = self._scan(name, rescue, newest)
            if found is not None and found.last_lsn >= found.first_lsn:
                (self.rescued if rescue else self.live).append(found)

    def _scan(self, name: str, rescue: bool, newest: bool) -> Segment | None:
        try:
            size = self.disk.size(name)
        except StorageError:
            return None  # trimmed between the listing and now
        if name in self.known and self.known[name][0] == size and self.known[name][1].sealed:
            return self.known[name][1]
        if newest and size <= SEGMENT_HEADER_SIZE:
            return None
        assert self.meta is not None
        try:
            found = scan(self.disk, self.meta, name, self.spaces, MARK_BYTES, rescue)
        except StorageError as error:
            raise named(self.disk, error) from error
        self.known[name] = (size, found)
        return found

    def find(self, term_id: bytes, lsn: int) -> Segment | None:
        for segment in (*reversed(self.live), *self.rescued):
            if segment.first_lsn <= lsn <= segment.last_lsn and segment.term.id == term_id:
                return segment
        return None

    def live_at(self, lsn: int) -> Segment | None:
        for segment in reversed(self.live):
            if segment.first_lsn <= lsn <= segment.last_lsn:
                return segment
        return None

    def path(self, offset: Offset) -> tuple[list[Piece], int, bytes | None]:
        """(pieces newest first, LSN before the oldest, term expected there) of a lineage."""
        term_id: bytes | None = bytes.fromhex(offset["term"])
        lsn = offset["lsn"]
        pieces: list[Piece] = []
        while lsn > 0:
            found = self.live_at(lsn) if not term_id else self.find(term_id, lsn)
            if found is None:
                break
            pieces.append(Piece(found, found.first_lsn, lsn))
            lsn = found.first_lsn - 1
            term_id = found.term.id if lsn >= found.term.start_lsn else found.term.parent
            if term_id is None:
                break
        return pieces, lsn, term_id

    @property
    def last_lsn(self) -> int:
        return self.live[-1].last_lsn if self.live else 0

    def commit_lsn(self) -> int:
        lsn, problem = read_commit(self.disk)
        if problem is not None:
            raise StorageError(f"{self.disk.where}/commit", 0, problem)
        return lsn


def term_at(pieces: list[Piece], lsn: int) -> bytes | None:
    for piece in pieces:
        if piece.first <= lsn <= piece.last:
            return piece.term_id
    return None


def fork_of(files: Files, start: Offset, end: Offset) -> tuple[int, list[Piece], list[Piece]]:
    """(last LSN both share, the start's pieces, the end's). Raises `StorageError` for a gap."""
    old, old_floor, _ = files.path(start)
    new, new_floor, new_term = files.path(end)
    lsn = min(start["lsn"], end["lsn"])
    while lsn > max(old_floor, new_floor) and term_at(old, lsn) != term_at(new, lsn):
        # Down to the next place where either of the two changes its term.
        lsn = max(piece.first - 1 for piece in (*old, *new) if piece.first <= lsn <= piece.last)
    where = files.disk.where
    if new_floor > lsn:
        raise StorageError(
            where, 0, f"LSN {lsn + 1} up to {new_floor} were trimmed before the stream read them"
        )
    if lsn < start["lsn"] and old_floor > lsn:
        raise StorageError(
            where,
            0,
            f"the log was rewound behind LSN {start['lsn']}, and no rescue file has "
            f"LSN {lsn + 1} up to {old_floor} of what was read",
        )
    unknown = not old and bool(start["term"]) and start["lsn"] > 0
    if unknown and lsn == start["lsn"]:
        there = term_at(new, lsn)
        if there is None and new_floor == lsn:
            there = new_term
        if there is not None and there.hex() != start["term"]:
            raise StorageError(
                where,
                0,
                f"LSN {lsn} is of term {there.hex()}, the stream had read term {start['term']}, "
                "and no rescue file has it",
            )
    return lsn, old, new


class LogStreamReader(LogReading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of at most `maxRecordsPerBatch` records."""

    def __init__(self, values: Mapping[str, Any], columns: tuple[str, ...]) -> None:
        super().__init__(values, columns)
        if len(self.paths) != 1:
            raise ValueError("a stream follows one directory; union several streams instead")
        self.limit = opt.number(values, "maxRecordsPerBatch")
        self.starting = str(values["startingLsn"]).lower()
        if self.starting not in ("earliest", "latest"):
            opt.number(values, "startingLsn")
        self.files = Files(self.paths[0])
        self.target: Offset | None = None

    def initialOffset(self) -> Offset:
        files = self.files
        files.refresh()
        if self.starting == "latest":
            return self._newest()
        first = files.live[0].first_lsn if files.live else 1
        if self.starting != "earliest":
            first = int(self.starting)
        before = files.live_at(first - 1)
        return {"term": before.term.id.hex() if before else "", "lsn": first - 1}

    def _newest(self) -> Offset:
        files = self.files
        lsn = files.last_lsn
        if self.wanted.until_commit:
            lsn = min(lsn, files.commit_lsn())
        found = files.live_at(lsn)
        return {"term": found.term.id.hex() if found else "", "lsn": lsn if found else 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self.files.refresh()
        self.target = self._newest()

    def reportLatestOffset(self) -> Offset | None:
        return self._newest() if self.files.live else None

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The place at most `limit` records behind the start, or the fork, on the live lineage."""
        files = self.files
        if self.target is None or not files.live:
            files.refresh()
        newest = self.target or self._newest()
        if not files.live or newest["lsn"] == 0 or newest == start:
            return start
        fork, _, _ = fork_of(files, start, newest)
        if newest["lsn"] <= start["lsn"] and fork == newest["lsn"]:
            # Nothing new, or a rewind of which only the cut is visible: what wins comes later.
            return start
        lsn = newest["lsn"]
        if not isinstance(limit, ReadAllAvailable):
            lsn = min(lsn, fork + getattr(limit, "max_rows", self.limit))
        found = files.live_at(lsn)
        assert found is not None, f"LSN {lsn} is behind the fork and before the end"
        return {"term": found.term.id.hex(), "lsn": lsn}

    def partitions(self, start: Offset, end: Offset) -> list[LogPartition]:
        """Retractions first, then the records from the fork to `end`; the same for a restart."""
        if start == end:
            return []
        files = self.files
        files.refresh()
        fork, old, new = fork_of(files, start, end)
        parts = [part for piece in reversed(old) for part in self._parts(piece, fork, True)]
        parts += [part for piece in reversed(new) for part in self._parts(piece, fork, False)]
        return [LogPartition(part) for part in parts]

    def _parts(self, piece: Piece, after: int, retracted: bool) -> Iterator[Part]:
        """The piece's records behind LSN `after`, large ones in several parts."""
        first = max(piece.first, after + 1)
        if first > piece.last:
            return
        segment, files = piece.segment, self.files
        marks = [mark for mark in segment.marks if mark[0] <= piece.last]
        step = max(min(self.wanted.split_bytes, PART_BYTES_MAX) // MARK_BYTES, 1)
        begin = max(at for at, mark in enumerate(marks) if mark[0] <= first)
        starts = marks[begin::step]
        ends = [mark[0] - 1 for mark in starts[1:]] + [piece.last]
        for start, last in zip(starts, ends, strict=True):
            yield Part(
                files.disk.where,
                segment.name,
                start,
                segment.valid_end,
                max(first, start[0]),
                last,
                segment.name.startswith(RESCUE_PREFIX),
                files.meta,
                dict(files.spaces),
                retracted=retracted,
            )


__all__ = ["LogStreamReader"]
