"""Cutting a diverged end off the log, after saving every record of it under `rescue/`.

A rescue file is a sealed segment of one term, `rescue/<number>-<first lsn>-<term id>.wal`; older
versions left out the id. Whether to cut, and what becomes of what is saved, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandemq.log.disk import (
    RESCUE_PREFIX,
    SUFFIX_DAMAGED,
    SUFFIX_IN_PROGRESS,
    Disk,
    ReadDisk,
    append_all,
    remove_durably,
)
from tandemq.log.meta import Meta, read_commit
from tandemq.log.segment import (
    SEGMENT_HEADER_SIZE,
    SUFFIX,
    SegmentInfo,
    SegmentReader,
    encode_segment_header,
    name_lsn,
    segment_names,
    whole_frame,
)
from tandemq.log.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from tandemq.log.snapshot import snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.record import FrameHeader, Record, decode_body, encode_frame
from tandemq.model.terms import Term


@dataclass(frozen=True, slots=True)
class Cut:
    """Records `first_lsn .. last_lsn` left the log; `rescue` names the files that hold them."""

    first_lsn: int
    last_lsn: int
    rescue: list[str]

    @property
    def records(self) -> int:
        return self.last_lsn - self.first_lsn + 1


def rescue_stem(term: Term, first_lsn: int) -> str:
    """What the files of one cut and term begin with. Numbers repeat, ids do not."""
    return f"{RESCUE_PREFIX}{term.number:010d}-{first_lsn:020d}-{term.id.hex()}"


def rescued_snapshot(name: str, term_id: bytes) -> str:
    """Where a rescue moves a snapshot whose last record is of this term."""
    return f"{RESCUE_PREFIX}{name.removesuffix(SNAPSHOT_SUFFIX)}-{term_id.hex()}{SNAPSHOT_SUFFIX}"


def rescue_names(disk: ReadDisk) -> list[str]:
    """Rescue files of the directory, by term and LSN."""
    return [n for n in disk.list() if n.startswith(RESCUE_PREFIX) and n.endswith(SUFFIX)]


def all_rescued(disk: ReadDisk) -> list[str]:
    """Everything whole under `rescue/`: records, notes, snapshots, what was put again since."""
    return [
        name
        for name in disk.list()
        if name.startswith(RESCUE_PREFIX) and not name.endswith(SUFFIX_IN_PROGRESS)
    ]


def read_rescue(
    disk: ReadDisk, meta: Meta, name: str
) -> Iterator[tuple[FrameHeader, bytes, list[Record]]]:
    """(header, whole frame, records) of each frame of a rescue file. Raises `StorageError`."""
    reader = SegmentReader(disk, name, meta, rescue=True)
    for header, body in reader.frames():
        yield header, whole_frame(header, body), decode_body(body, header.count)
    if reader.footer is None:
        raise StorageError(name, reader.info.size, "rescue file has no footer")


def bring_back_snapshot(disk: Disk) -> list[str]:
    """Undo a full rescue that older versions left half done. Returns what to report.

    They moved the only snapshot to `rescue/` before the log behind it was saved, and took `commit`
    away after the log.
    """
    segments, here = segment_names(disk), snapshot_names(disk)
    # Where both are gone `commit` says that the rescue did not come to its end.
    published = read_commit(disk)[0] if not segments else 0
    first = (name_lsn(segments[0], SUFFIX) or 0) if segments else published + 1
    if (name_lsn(here[-1], SNAPSHOT_SUFFIX) or 0 if here else 0) + 1 >= first:
        return []
    for path in disk.list():
        name = path.removeprefix(RESCUE_PREFIX)
        end_lsn = name_lsn(name, SNAPSHOT_SUFFIX) if name != path else None
        if end_lsn is not None and end_lsn + 1 >= first:
            disk.rename(path, name)
            disk.sync_dir()
            return [f"{path}: moved back, the log goes on behind it"]
    return []


def save_from(disk: Disk, meta: Meta, segments: list[SegmentInfo], lsn: int) -> list[str]:
    """Copy every record from `lsn` on to rescue files, durably. Returns their names."""
    names: list[str] = []
    writer: _Writer | None = None
    for info in segments:
        if info.last_lsn < lsn:
            continue
        if writer is not None and writer.info.term != info.term:
            names.append(writer.finish())
            writer = None
        for header, body in SegmentReader(disk, info.name, meta, info.size).frames():
            if header.last_lsn < lsn:
                continue
            first_lsn = max(header.first_lsn, lsn)
            if writer is None:
                writer = _Writer(disk, meta, info, first_lsn)
            records = decode_body(body, header.count)[first_lsn - header.first_lsn :]
            if first_lsn == header.first_lsn:
                frame = whole_frame(header, body)
            else:
                frame = _part(info, records, first_lsn, header.commit_lsn)
            writer.add(frame, records)
    if writer is not None:
        names.append(writer.finish())
    return names


def _part(info: SegmentInfo, records: list[Record], first_lsn: int, commit_lsn: int) -> bytes:
    """A frame of some records of a frame: the codec gives the same bytes for the same values."""
    return encode_frame(records, info.term.number, info.term.id, first_lsn, commit_lsn)


class _Writer:
    """One rescue file, written aside and renamed when it is complete."""

    def __init__(self, disk: Disk, meta: Meta, source: SegmentInfo, first_lsn: int) -> None:
        self.disk, self.meta = disk, meta
        term = source.term
        self.name = rescue_stem(term, first_lsn) + SUFFIX
        self.aside = self.name + SUFFIX_IN_PROGRESS
        header = encode_segment_header(meta, term, first_lsn)
        self.info = SegmentInfo(
            self.name, term, first_lsn, first_lsn - 1, SEGMENT_HEADER_SIZE, header=header
        )
        if self.aside in disk.list():
            disk.remove(self.aside)
        self.handle = disk.create(self.aside)
        append_all(disk, self.handle, header)

    def add(self, frame: bytes, records: list[Record]) -> None:
        info = self.info
        append_all(self.disk, self.handle, frame)
        if not info.frames:
            info.first_time_us = records[0][0]
        info.last_time_us = records[-1][0]
        info.frames += 1
        info.size += len(frame)
        info.last_lsn += len(records)

    def finish(self) -> str:
        """Make the file durable. One that is there already and holds more is kept instead.

        A cut that was interrupted and runs again finds fewer records than the first time.
        """
        append_all(self.disk, self.handle, self.info.footer())
        self.disk.sync(self.handle)
        self.disk.close(self.handle)
        if self.name in self.disk.list() and self._kept_lsn() > self.info.last_lsn:
            self.disk.remove(self.aside)
        else:
            self.disk.rename(self.aside, self.name)
        self.disk.sync_dir()
        return self.name

    def _kept_lsn(self) -> int:
        try:
            footer = SegmentReader(self.disk, self.name, self.meta, rescue=True).peek_footer()
        except StorageError:
            # Damaged since: what can be read of it still is not thrown away.
            self.disk.rename(self.name, self.name + SUFFIX_DAMAGED)
            return 0
        return footer.last_lsn if footer is not None else 0


def cut_from(disk: Disk, meta: Meta, segments: list[SegmentInfo], lsn: int) -> None:
    """Remove every record from `lsn` on, newest segment first; `segments` follows.

    The segment `lsn` falls into stays as the unsealed newest one, unless nothing of it is left.
    """
    while segments and segments[-1].first_lsn >= lsn:
        remove_durably(disk, segments[-1].name)
        segments.pop()
    if not segments or segments[-1].last_lsn < lsn:
        return
    old = segments.pop()
    reader = SegmentReader(disk, old.name, meta, old.size)
    kept = reader.info
    header, body = next(frame for frame in reader.frames() if frame[0].last_lsn >= lsn)
    # The reader has counted the frame at which the cut falls, too.
    position = kept.size - len(whole_frame(header, body))
    new = SegmentInfo(
        old.name, old.term, old.first_lsn, header.first_lsn - 1, position, header=kept.header
    )
    new.frames = kept.frames - 1
    new.index = [mark for mark in kept.index if mark[0] < header.first_lsn]
    records = decode_body(body, header.count)[: lsn - header.first_lsn]
    new.first_time_us, new.last_time_us = old.first_time_us, old.last_time_us
    if records:
        frame = _part(new, records, header.first_lsn, header.commit_lsn)
        _replace_end(disk, new, frame)
        new.last_lsn, new.size = lsn - 1, position + len(frame)
        new.last_time_us = records[-1][0]
        new.frames += 1
    else:
        disk.truncate(old.name, position)
    segments.append(new)


def _replace_end(disk: Disk, info: SegmentInfo, frame: bytes) -> None:
    """Give the segment a new last frame at `info.size`, by way of a copy: all or nothing."""
    aside = info.name + SUFFIX_IN_PROGRESS
    if aside in disk.list():
        disk.remove(aside)
    handle = disk.create(aside)
    append_all(disk, handle, disk.read(info.name, 0, info.size))
    append_all(disk, handle, frame)
    disk.sync(handle)
    disk.close(handle)
    disk.rename(aside, info.name)
    disk.sync_dir()
