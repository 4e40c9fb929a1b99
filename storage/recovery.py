"""From files to state at start: newest valid snapshot, then the log behind it, each byte verified.

A torn tail of the newest segment is cut and reported; everything else that is not as it was
written is refused by name. What records mean is the sink's business.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tandemq.log.disk import SUFFIX_DAMAGED, SUFFIX_IN_PROGRESS, Disk, remove_durably
from tandemq.log.meta import COMMIT_NAME, Meta, meta_of, read_commit
from tandemq.log.rescue import bring_back_snapshot
from tandemq.log.segment import (
    SEGMENT_HEADER_SIZE,
    SegmentInfo,
    SegmentReader,
    name_lsn,
    segment_names,
)
from tandemq.log.segment import SUFFIX as SEGMENT_SUFFIX
from tandemq.log.snapshot import SnapshotHeader, read_snapshot, snapshot_names, verify_snapshot
from tandemq.model.errors import StorageError
from tandemq.model.record import FrameError, Op, Record, decode_body
from tandemq.model.terms import Term
from tandemq_server.storage.log import SEGMENT_BYTES, Log
from tandemq_server.storage.mend import DamagedFiles, forget_missing, keep_torn, read_missing

NO_FOOTER = "ends without the footer of a sealed segment"


class Sink(Protocol):
    """Where recovered state goes, in the order of the calls."""

    def catalogue(self, ops: Sequence[Op]) -> None: ...

    def rows(self, space_id: int, rows: Sequence[Sequence[Any]]) -> None:
        """Whole rows, replacing those of the same key."""
        ...

    def records(self, first_lsn: int, records: Sequence[Record], lenient: bool, term: Term) -> None:
        """Records `first_lsn ...`. `lenient`: inside a snapshot, rows they name may be missing."""
        ...


@dataclass(slots=True)
class Recovered:
    """What recovery found.

    lineage: terms that have records, oldest first. reports: one line for each thing a person
    should know. segments, last_lsn, commit_lsn: what `open_log` goes on with. missing_lsn: up to
    where there was more once than could be read, 0 for nothing.
    """

    meta: Meta
    last_lsn: int = 0
    commit_lsn: int = 0
    lineage: list[Term] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    snapshot: str | None = None
    snapshot_lsn: int = 0
    segments: list[SegmentInfo] = field(default_factory=list)
    cut_bytes: int = 0
    records: int = 0
    last_time_us: int = 0
    missing_lsn: int = 0

    @property
    def next_lsn(self) -> int:
        return self.last_lsn + 1


def open_log(disk: Disk, recovered: Recovered, segment_bytes: int = SEGMENT_BYTES) -> Log:
    """The log that goes on where recovery ended; call its `open_term` next."""
    return Log(
        disk,
        recovered.meta,
        segment_bytes,
        recovered.segments,
        recovered.next_lsn,
        recovered.commit_lsn,
    )


def recover(disk: Disk, sink: Sink, strict_commit: bool = True) -> Recovered:
    """Load everything the directory holds into `sink` and make the log ready to go on.

    `strict_commit`: refuse a log that ends before the published commit LSN (the fsync modes);
    False only reports it (`wal.mode: write`, which does not promise to survive a power cut).
    The collector of Python is paused meanwhile. Raises `StorageError`, `DamagedFiles` where a peer
    may have what cannot be read; the sink then holds part of a state and must be thrown away.
    """
    meta = meta_of(disk)
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _Recovery(disk, sink, meta, strict_commit).run()
    finally:
        if collecting:
            gc.enable()


def wipe(disk: Disk) -> None:
    """Remove log and snapshots, before a bootstrap from a peer; `meta` and `rescue/` stay.

    Interrupted at any point it leaves a directory that recovers or is wiped again.
    """
    wipe_log(disk)
    # From the oldest: what is left is always a state.
    for name in snapshot_names(disk):
        remove_durably(disk, name)


def wipe_log(disk: Disk) -> None:
    """Remove the whole log from its newest segment on; the snapshots stay."""
    if COMMIT_NAME in disk.list():
        remove_durably(disk, COMMIT_NAME)
    for name in reversed(segment_names(disk)):
        remove_durably(disk, name)


class _Recovery:
    """The steps of one recovery and what they share."""

    def __init__(self, disk: Disk, sink: Sink, meta: Meta, strict_commit: bool) -> None:
        self.disk = disk
        self.sink = sink
        self.strict_commit = strict_commit
        self.found = Recovered(meta)

    def run(self) -> Recovered:
        found = self.found
        # A process may have ended between the making of a file and the sync of its name: what is
        # built on from here on must not go with a later power cut.
        self.disk.sync_dir()
        self._remove_unfinished()
        found.missing_lsn = read_missing(self.disk)
        found.commit_lsn, problem = read_commit(self.disk)
        if problem is not None:
            found.reports.append(problem)
        names = segment_names(self.disk)
        found.reports += bring_back_snapshot(self.disk)
        self._choose_snapshot(names)
        self._load_snapshot()
        found.last_lsn = found.snapshot_lsn
        for name in names:
            self._segment(name, last=name == names[-1])
        self._check_reach()
        return found

    def _remove_unfinished(self) -> None:
        names = [name for name in self.disk.list() if name.endswith(SUFFIX_IN_PROGRESS)]
        for name in names:
            self.found.reports.append(f"{name}: unfinished, {self.disk.size(name)} bytes removed")
            self.disk.remove(name)
        if names:
            self.disk.sync_dir()

    # -- snapshots -------------------------------------------------------------------------------

    def _choose_snapshot(self, segments: list[str]) -> None:
        """The newest valid snapshot; an older one, or none, only if the log covers the rest."""
        damaged: list[StorageError] = []
        for name in reversed(snapshot_names(self.disk)):
            try:
                end = verify_snapshot(self.disk, name, self.found.meta.cluster)
            except StorageError as error:
                if " belongs to " in f" {error.reason}" or "is newer" in error.reason:
                    raise
                damaged.append(error)
                continue
            self.found.snapshot = name
            self.found.snapshot_lsn = end.end_lsn
            self.found.last_time_us = end.time_us
            break
        if not damaged:
            return
        first = name_lsn(segments[0], SEGMENT_SUFFIX) if segments else None
        if first is None or first > self.found.snapshot_lsn + 1:
            # Nothing older leads to the present: name the snapshot that would have.
            raise DamagedFiles.of(damaged[0])
        instead = self.found.snapshot or "the whole log"
        for refused in damaged:
            self.found.reports.append(f"{refused}; recovered from {instead} instead")
            self.disk.rename(refused.file, refused.file + SUFFIX_DAMAGED)
        self.disk.sync_dir()

    def _load_snapshot(self) -> None:
        found, sink = self.found, self.sink
        if found.snapshot is None:
            return
        header: SnapshotHeader | None = None
        for part in read_snapshot(self.disk, found.snapshot, found.meta):
            match part:
                case ("header", header):
                    found.lineage.extend(header.lineage)
                case ("catalogue", ops):
                    sink.catalogue(ops)
                case ("rows", space_id, rows):
                    sink.rows(space_id, rows)
                case ("term", term):
                    found.lineage.append(term)
                case ("frame", frame, records):
                    term = next(t for t in reversed(found.lineage) if t.number == frame.term)
                    sink.records(frame.first_lsn, records, True, term)
                case _:
                    assert part[0] == "end", part[0]

    # -- segments --------------------------------------------------------------------------------

    def _segment(self, name: str, last: bool) -> None:
        if last:
            self.disk.settle(name)
            if self._header_torn(name):
                return
        found = self.found
        try:
            reader = SegmentReader(self.disk, name, found.meta)
        except StorageError as error:
            raise DamagedFiles.of(error) if "segment header" in error.reason else error from error
        self._check_place(reader)
        if not last and self._below_snapshot(reader):
            found.segments.append(reader.info)
            return
        try:
            self._read(reader)
        except StorageError as error:
            if error is not reader.damage:
                raise
            if not last:
                raise DamagedFiles.of(error) from error
            self._cut(reader, error)
        if not last and reader.footer is None:
            raise DamagedFiles(name, reader.info.size, NO_FOOTER)
        found.segments.append(reader.info)

    def _header_torn(self, name: str) -> bool:
        """Remove a newest segment that never got its header: a crash right after a roll.

        The header is synced before the first frame is written, so a file that goes on behind it
        was damaged later and is not torn.
        """
        size = self.disk.size(name)
        if size > SEGMENT_HEADER_SIZE:
            return False
        try:
            SegmentReader(self.disk, name, self.found.meta)
        except StorageError as error:
            if "segment header" not in error.reason:
                raise
            self._refuse_committed(name, 0, name_lsn(name, SEGMENT_SUFFIX) or 0, error.reason)
            self.found.reports.append(f"{name}: no segment header yet, {size} bytes removed")
            self.found.cut_bytes += size
            remove_durably(self.disk, name)
            return True
        return False

    def _check_place(self, reader: SegmentReader) -> None:
        """LSNs and terms must continue the segment before, or the snapshot."""
        found = self.found
        due = found.segments[-1].last_lsn + 1 if found.segments else found.snapshot_lsn + 1
        if reader.first_lsn > due or (found.segments and reader.first_lsn != due):
            raise DamagedFiles(
                reader.name, 0, f"starts at LSN {reader.first_lsn}; LSN {due} and up are missing"
            )

    def _check_term(self, reader: SegmentReader) -> None:
        """Called when a segment has records to give: its term must continue the lineage."""
        lineage, term = self.found.lineage, reader.term
        if lineage and lineage[-1].id == term.id:
            return
        parent = lineage[-1].id if lineage else None
        if term.parent != parent or term.start_lsn != self.found.last_lsn + 1:
            raise StorageError(
                reader.name,
                0,
                f"term {term.number} ({term.id.hex()}) from LSN {term.start_lsn} does not continue "
                f"the lineage, which ends at LSN {self.found.last_lsn} of "
                f"{lineage[-1].number if lineage else 'no term'}",
            )
        lineage.append(term)

    def _below_snapshot(self, reader: SegmentReader) -> bool:
        """Whether a sealed segment ends before the snapshot does, so that it need not be read."""
        footer = reader.peek_footer()
        if footer is None or footer.last_lsn > self.found.snapshot_lsn:
            # Without a footer reading names what is wrong, and where.
            return False
        reader.skip(footer)
        return True

    def _read(self, reader: SegmentReader) -> None:
        """Give the sink every record behind the snapshot."""
        found, give, term = self.found, self.sink.records, reader.term
        info = reader.info
        for header, body in reader.frames():
            try:
                records = decode_body(body, header.count)
            except FrameError as error:
                raise StorageError(reader.name, info.size, error.reason) from error
            if info.frames == 1:
                info.first_time_us = records[0][0]
            first_lsn, skip = header.first_lsn, found.last_lsn + 1 - header.first_lsn
            found.last_time_us = max(found.last_time_us, records[-1][0])
            info.last_time_us = records[-1][0]
            if skip >= header.count:
                continue
            if skip > 0:
                records, first_lsn = records[skip:], first_lsn + skip
            if not found.lineage or found.lineage[-1].id != term.id:
                self._check_term(reader)
            give(first_lsn, records, False, term)
            found.last_lsn = header.last_lsn
            found.records += len(records)

    def _cut(self, reader: SegmentReader, error: StorageError) -> None:
        """Cut what was being written, if nothing proves that it was committed.

        Whole frames behind the damage are cut with it: pages reach the disk in any order until
        they are synced. Those frames are kept aside.
        """
        info, found = reader.info, self.found
        behind = reader.behind(info.size)
        if found.missing_lsn > max(info.last_lsn, found.snapshot_lsn):
            # Putting damage aside was interrupted: this is more of it.
            raise DamagedFiles.of(error) from error
        if behind.commit_lsn > max(info.last_lsn, found.snapshot_lsn):
            raise DamagedFiles(
                error.file,
                error.position,
                f"{error.reason}; byte {behind.position} is valid again, and the log was committed "
                f"up to LSN {behind.commit_lsn}",
            ) from error
        self._refuse_committed(error.file, error.position, info.last_lsn + 1, error.reason)
        size = reader.size - info.size
        aside = ""
        if behind.position is not None:
            kept = keep_torn(self.disk, info.name, info.size)
            aside = f"; whole frames up to LSN {behind.last_lsn} stood behind it, {kept}"
        self.disk.truncate(info.name, info.size)
        found.cut_bytes += size
        found.reports.append(
            f"{info.name}: cut {size} bytes of torn tail at byte {info.size}, behind LSN "
            f"{info.last_lsn} ({error.reason}){aside}"
        )

    def _refuse_committed(self, file: str, position: int, lsn: int, reason: str) -> None:
        """Damage from `lsn` on is not a torn write if records from there on were committed.

        Those a valid snapshot holds are not lost with the log.
        """
        found = self.found
        if max(lsn, found.snapshot_lsn + 1) <= found.commit_lsn and self.strict_commit:
            raise DamagedFiles(
                file, position, f"{reason}; committed was up to LSN {found.commit_lsn}"
            )

    def _check_reach(self) -> None:
        """The log must reach what was published as committed; a shorter one than the snapshot goes.

        A snapshot may be durable before the log it was taken from. It holds all of that log, and
        records that follow it would leave a gap behind the log's end.
        """
        found = self.found
        file, size = COMMIT_NAME, 0
        if found.segments:
            file, size = found.segments[-1].name, found.segments[-1].size
        if found.last_lsn < found.commit_lsn <= found.missing_lsn:
            found.commit_lsn = found.last_lsn
        if found.last_lsn < found.commit_lsn:
            self._refuse_committed(file, size, found.last_lsn + 1, f"log ends at {found.last_lsn}")
            found.reports.append(
                f"{file}: {found.commit_lsn - found.last_lsn} records published as committed are "
                f"lost, up to LSN {found.commit_lsn}"
            )
            found.commit_lsn = found.last_lsn
        if found.segments and found.segments[-1].last_lsn < found.snapshot_lsn:
            found.reports.append(
                f"{file}: log ends at LSN {found.segments[-1].last_lsn}, removed as "
                f"{found.snapshot} goes further"
            )
            for info in reversed(found.segments):
                remove_durably(self.disk, info.name)
            found.segments.clear()
        if 0 < found.missing_lsn <= found.last_lsn:
            forget_missing(self.disk)
            found.reports.append(f"LSN {found.missing_lsn} and what was before it are here again")
            found.missing_lsn = 0
