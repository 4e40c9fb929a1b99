"""The log of one node: appends frames, rolls segments, publishes the commit LSN, feeds replicas.

Blocking; time enters with each append. After the first failed write or sync the log takes nothing
more: what a failed fsync left on disk is unknown, so it is never repeated.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from threading import Lock

from tandemq.log.disk import Disk, append_all
from tandemq.log.meta import COMMIT_NAME, Meta, encode_commit
from tandemq.log.rescue import Cut, cut_from, save_from
from tandemq.log.segment import (
    INDEX_BYTES,
    SEGMENT_HEADER_SIZE,
    SegmentInfo,
    SegmentReader,
    encode_segment_header,
    segment_name,
    whole_frame,
)
from tandemq.model.errors import StorageError
from tandemq.model.record import FrameHeader
from tandemq.model.terms import Term
from tandemq.model.units import MIB

SEGMENT_BYTES = 32 * MIB
#: Term number, first LSN, record count inside a frame header, behind magic, length and CRC.
_POSITION = struct.Struct(">IQI")
_POSITION_AT = 12


class Log:
    """Append-only, one writer. `sync` may run in other threads while `append` goes on.

    last_lsn: the last record appended; synced_lsn: the last one known durable; commit_lsn: the
    last one published. `failure` is the error that stopped the log, None while it works.
    """

    def __init__(
        self,
        disk: Disk,
        meta: Meta,
        segment_bytes: int = SEGMENT_BYTES,
        segments: Sequence[SegmentInfo] = (),
        next_lsn: int = 1,
        commit_lsn: int = 0,
    ) -> None:
        """All but the size come from `recover` (see `open_log`); `open_term` before `append`."""
        assert segment_bytes > SEGMENT_HEADER_SIZE
        self._disk = disk
        self._meta = meta
        self._segment_bytes = segment_bytes
        self._segments = list(segments)
        self._next_lsn = next_lsn
        self._handle = -1
        self._tail: SegmentInfo | None = None
        self._term_number = -1
        #: The size of the tail from which the next frame is noted in its index.
        self._mark_at = 0
        self._commit_handle = -1
        #: Guards the two below: how many syncs are under way, and handles they must close.
        self._sync_lock = Lock()
        self._syncing = 0
        self._retired: list[int] = []
        self.synced_lsn = next_lsn - 1
        self.commit_lsn = commit_lsn
        self.failure: StorageError | None = None

    @property
    def last_lsn(self) -> int:
        return self._next_lsn - 1

    @property
    def first_lsn(self) -> int:
        """The oldest record still in the log; `last_lsn + 1` when it holds none."""
        return self._segments[0].first_lsn if self._segments else self._next_lsn

    @property
    def term(self) -> Term | None:
        """The term appends go to, None before `open_term`."""
        return None if self._tail is None else self._tail.term

    @property
    def segments(self) -> Sequence[SegmentInfo]:
        """All segments, oldest first, with their sizes. Read only."""
        return tuple(self._segments)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    # -- writing ---------------------------------------------------------------------------------

    def open_term(self, term: Term, first_lsn: int) -> None:
        """Let the next frames belong to `term`, the first of them starting at `first_lsn`.

        Goes on in the newest segment if it is of this very term, else seals it and starts another.
        Raises `StorageError`.
        """
        self._check_usable()
        if first_lsn != self._next_lsn:
            raise StorageError(
                self._disk.where, 0, f"LSN {first_lsn} does not follow {self.last_lsn}"
            )
        tail = self._segments[-1] if self._segments else None
        self._check_lineage(term)
        try:
            if tail is not None and not tail.sealed:
                if self._handle < 0:
                    self._handle = self._disk.open(tail.name)
                if tail.term == term:
                    self._tail = tail
                    self._term_number = term.number
                    self._mark_at = tail.index[-1][1] + INDEX_BYTES if tail.index else 0
                    return
            self._roll(term)
        except StorageError as error:
            raise self._stop(error) from error

    def _check_lineage(self, term: Term) -> None:
        """What recovery would refuse must not be written in the first place."""
        before = next((s.term for s in reversed(self._segments) if s.records), None)
        if before is None or before == term:
            fits = term.start_lsn <= self._next_lsn
        else:
            fits = term.parent == before.id and term.start_lsn == self._next_lsn
        if not fits:
            raise StorageError(
                self._disk.where,
                0,
                f"{term} cannot follow {before} at LSN {self._next_lsn}",
            )

    def append(
        self,
        frame: bytes,
        first_lsn: int,
        last_lsn: int,
        time_us: int,
        frames: int = 1,
        since_us: int = 0,
    ) -> None:
        """Write one frame; durable only after `sync`. `time_us`: the newest record's time.

        `frames`: how many there are in `frame`, one behind the other, of which only the first is
        looked at; `since_us` is then the oldest record's time. Raises `StorageError`, and from
        then on always.
        """
        tail = self._tail
        if self.failure is not None or tail is None:
            raise self._refusal()
        number, first, count = _POSITION.unpack_from(frame, _POSITION_AT)
        if (
            first != first_lsn
            or first_lsn != self._next_lsn
            or number != self._term_number
            or (first + count - 1 != last_lsn and (frames == 1 or first + count > last_lsn))
            or count == 0
        ):
            raise StorageError(
                tail.name,
                tail.size,
                f"frame of term {number}, {count} records from LSN {first}, does not continue "
                f"term {self._term_number} at LSN {self._next_lsn}",
            )
        try:
            if tail.size >= self._segment_bytes:
                tail = self._roll(tail.term)
            size = len(frame)
            if (written := self._disk.append(self._handle, frame)) != size:
                append_all(self._disk, self._handle, frame[written:])
        except StorageError as error:
            raise self._stop(error) from error
        if tail.size >= self._mark_at:
            tail.index.append((first_lsn, tail.size))
            self._mark_at = tail.size + INDEX_BYTES
        tail.size += size
        tail.last_lsn = last_lsn
        self._next_lsn = last_lsn + 1
        if not tail.frames:
            tail.first_time_us = since_us or time_us
        tail.last_time_us = time_us
        tail.frames += frames

    def sync(self) -> int:
        """Make everything appended so far durable. Returns the last durable LSN.

        Raises `StorageError`, and from then on always.
        """
        self._check_usable()
        with self._sync_lock:
            self._syncing += 1
            # The LSN before the handle: a roll in between has synced all that the LSN covers.
            lsn = self._next_lsn - 1
            handle = self._handle
        try:
            if handle >= 0 and lsn > self.synced_lsn:
                self._disk.sync(handle)
        except StorageError as error:
            raise self._stop(error) from error
        finally:
            retired: list[int] = []
            with self._sync_lock:
                self._syncing -= 1
                if not self._syncing:
                    retired, self._retired = self._retired, retired
            for old in retired:
                self._disk.close(old)
        with self._sync_lock:
            self.synced_lsn = max(self.synced_lsn, lsn)
        return self.synced_lsn

    def publish_commit(self, lsn: int) -> None:
        """Leave word beside the log how far it was acknowledged. Not synced; never backwards.

        Raises `StorageError`, and from then on always.
        """
        if lsn <= self.commit_lsn:
            return
        self._check_usable()
        assert lsn <= self.last_lsn, f"commit {lsn} is past the last record {self.last_lsn}"
        try:
            self._write_commit(lsn)
        except StorageError as error:
            raise self._stop(error) from error
        self.commit_lsn = lsn

    def close(self) -> None:
        """Sync and give the files back, unless the log failed; then only give them back."""
        try:
            if self.failure is None:
                self.sync()
        finally:
            for handle in (self._handle, self._commit_handle, *self._retired):
                if handle >= 0:
                    self._disk.close(handle)
            self._handle = self._commit_handle = -1
            self._retired.clear()
            self._tail = None

    def _write_commit(self, lsn: int) -> None:
        if self._commit_handle < 0:
            known = COMMIT_NAME in self._disk.list()
            open_file = self._disk.open if known else self._disk.create
            self._commit_handle = open_file(COMMIT_NAME)
        self._disk.overwrite(self._commit_handle, encode_commit(lsn))

    def _roll(self, term: Term) -> SegmentInfo:
        """Seal the newest segment, if any is open, and start the next, all of it durable."""
        disk, old = self._disk, self._handle
        tail = self._segments[-1] if self._segments else None
        if tail is not None and not tail.sealed:
            if tail.frames:
                footer = tail.footer()
                append_all(disk, old, footer)
                disk.sync(old)
                tail.size += len(footer)
                tail.sealed = True
                with self._sync_lock:
                    self.synced_lsn = max(self.synced_lsn, tail.last_lsn)
            else:
                disk.remove(tail.name)
                self._segments.pop()
        first_lsn = self._next_lsn
        header = encode_segment_header(self._meta, term, first_lsn)
        name = segment_name(first_lsn)
        handle = disk.create(name)
        append_all(disk, handle, header)
        disk.sync(handle)
        disk.sync_dir()
        new = SegmentInfo(name, term, first_lsn, first_lsn - 1, len(header), header=header)
        self._segments.append(new)
        self._tail = new
        self._term_number = term.number
        self._mark_at = 0
        with self._sync_lock:
            self._handle = handle
            if old >= 0 and self._syncing:
                # A sync in another thread may still be using it; the last one closes it.
                self._retired.append(old)
                old = -1
        if old >= 0:
            disk.close(old)
        return new

    # -- failing ---------------------------------------------------------------------------------

    def _stop(self, error: StorageError) -> StorageError:
        if self.failure is None:
            self.failure = error
        return error

    def _refusal(self) -> StorageError:
        if self.failure is None:
            return StorageError(self._disk.where, 0, "the log is not open for a term")
        return StorageError(
            self.failure.file,
            self.failure.position,
            f"the log stopped at its first error: {self.failure.reason}",
        )

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise self._refusal()

    # -- reading and cutting ---------------------------------------------------------------------

    def read_from(self, lsn: int) -> Iterator[tuple[FrameHeader, bytes]]:
        """(header, whole frame) from the frame that holds `lsn` up to the last one appended.

        Frames appended meanwhile are included. The first frame may start below `lsn`. Raises
        `StorageError` when `lsn` is no longer in the log, or a segment goes while it is read.
        """
        while lsn <= self.last_lsn:
            self.check_reach(lsn)
            at = bisect_left(self._segments, lsn, key=_last_lsn)
            info = self._segments[at]
            reader = SegmentReader(self._disk, info.name, self._meta, info.size)
            mark = bisect_right(info.index, lsn, key=_first_lsn) - 1
            for header, body in reader.frames(info.index[mark] if mark >= 0 else None):
                if header.last_lsn >= lsn:
                    yield header, whole_frame(header, body)
                    lsn = header.last_lsn + 1
            if not info.index:
                info.index = reader.info.index

    def trim(self, before_lsn: int) -> list[str]:
        """Remove whole segments below `before_lsn`, oldest first; never the newest one.

        Returns their names. Raises `StorageError`.
        """
        gone: list[str] = []
        while len(self._segments) > 1 and self._segments[0].last_lsn < before_lsn:
            self._disk.remove(self._segments[0].name)
            # Gone, even if that cannot be made durable now: it must not be read any more.
            gone.append(self._segments.pop(0).name)
            self._disk.sync_dir()
        return gone

    def rescue_from(self, lsn: int) -> list[str]:
        """Save every record from `lsn` on under `rescue/`, durably, one file per term.

        Returns their names; the log stays as it is. Raises `StorageError`.
        """
        self._check_usable()
        self.check_reach(lsn)
        try:
            return save_from(self._disk, self._meta, self._segments, lsn)
        except StorageError as error:
            raise self._stop(error) from error

    def check_reach(self, lsn: int) -> None:
        """Raises `StorageError` when `lsn` is no longer in the log."""
        if lsn < self.first_lsn:
            raise StorageError(
                self._disk.where, 0, f"LSN {lsn} is gone, the log starts at {self.first_lsn}"
            )

    def truncate_from(self, lsn: int, rescue: bool = True) -> Cut:
        """Cut every record from `lsn` on, for a rewind; `open_term` must follow.

        The records are first saved by `rescue_from`, unless the caller has done so, then removed
        newest first: whenever this is interrupted the log is valid, and cutting again finishes
        it. The published commit LSN goes down with them. Raises `StorageError`.
        """
        self._check_usable()
        if lsn > self.last_lsn:
            return Cut(lsn, self.last_lsn, [])
        self.check_reach(lsn)
        last_lsn = self.last_lsn
        names = self.rescue_from(lsn) if rescue else []
        try:
            if self._handle >= 0:
                self._disk.close(self._handle)
                self._handle = -1
            self._tail = None
            if self.commit_lsn >= lsn:
                self._write_commit(lsn - 1)
                self._disk.sync(self._commit_handle)
                self.commit_lsn = lsn - 1
            cut_from(self._disk, self._meta, self._segments, lsn)
        except StorageError as error:
            raise self._stop(error) from error
        self._next_lsn = lsn
        self.synced_lsn = lsn - 1
        return Cut(lsn, last_lsn, names)


def _last_lsn(segment: SegmentInfo) -> int:
    return segment.last_lsn


def _first_lsn(mark: tuple[int, int]) -> int:
    return mark[0]
