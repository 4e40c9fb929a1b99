"""Frames out of the log as they stand in its files, many at a time, for whoever checks them anyway.

Only headers are looked at. A reader that must trust what it reads takes `Log.read_from`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right

from tandemq.log.disk import Disk
from tandemq.log.segment import SEGMENT_HEADER_SIZE, SegmentInfo
from tandemq.model.errors import StorageError
from tandemq.model.record import FRAME_MAGIC, HEADER_SIZE, Span
from tandemq_server.storage.log import Log

#: Magic, length of the body, CRC, term number, first LSN, count, commit LSN.
_HEADER = struct.Struct(">4sIIIQIQ")
assert _HEADER.size == HEADER_SIZE, "the frame header is laid out in client/tandemq/model/record.py"

Run = tuple[Span, bytes, bytes]


class RunReader:
    """Reads runs of frames: (LSNs, bytes, id of their term). Remembers where the last one ended."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        #: A segment, the LSN that comes next in it, and where.
        self._next: tuple[SegmentInfo, int, int] | None = None

    def read(self, log: Log, lsn: int, size: int) -> Run:
        """Whole frames of one segment from the one that holds `lsn` on.

        About `size` bytes, at least one frame; no CRC is looked at. Raises `StorageError` when
        `lsn` is not in the log, or headers are not those of frames that follow each other.
        """
        segments = log.segments
        if not log.first_lsn <= lsn <= log.last_lsn:
            reason = f"LSN {lsn} is not in the log of {log.first_lsn}..{log.last_lsn}"
            raise StorageError(self._disk.where, 0, reason)
        info = segments[bisect_left(segments, lsn, key=_last_lsn)]
        first, position = self._start(info, lsn)
        while True:
            data = self._disk.read(info.name, position, min(size, info.size - position))
            end, last, skipped = _whole_frames(data, info, position, first, lsn)
            if last >= lsn:
                break
            if end:
                first, position = last + 1, position + end
            else:
                size = max(size, _needed(data))
        self._next = (info, last + 1, position + end)
        start, first = skipped
        return Span(first, last), data[start:end], info.term.id

    def _start(self, info: SegmentInfo, lsn: int) -> tuple[int, int]:
        """(LSN, position) of a frame at or in front of the one that holds `lsn`."""
        known = self._next
        if known is not None and known[0] is info and known[1] == lsn:
            return known[1], known[2]
        mark = bisect_right(info.index, lsn, key=_first_lsn) - 1
        return info.index[mark] if mark >= 0 else (info.first_lsn, SEGMENT_HEADER_SIZE)


def _whole_frames(
    data: bytes, info: SegmentInfo, position: int, due: int, lsn: int
) -> tuple[int, int, tuple[int, int]]:
    """Where the frames that are whole in what was read at `position` end, and their last LSN.

    And where the frame that holds `lsn` starts, with its first LSN. The first frame begins with
    LSN `due`. Raises `StorageError`.
    """
    at, number, unpack = 0, info.term.number, _HEADER.unpack_from
    start = (0, due)
    while at + HEADER_SIZE <= len(data):
        magic, length, _, term, found, count, _ = unpack(data, at)
        end = at + HEADER_SIZE + length
        if (
            magic != FRAME_MAGIC
            or term != number
            or found != due
            or not count
            or position + end > info.size
        ):
            if due > lsn:
                # The footer, or damage that is named when its turn comes.
                break
            raise StorageError(
                info.name,
                position + at,
                f"{count} records of term {term} from LSN {found} in {length} bytes, due is LSN "
                f"{due} of term {number}",
            )
        if end > len(data):
            break
        if due <= lsn:
            start = (at, due)
        at, due = end, due + count
    if not at and position + len(data) >= info.size:
        raise StorageError(info.name, position, f"the segment ends before LSN {due}")
    return at, due - 1, start


def _needed(data: bytes) -> int:
    """How much must be read for the frame at the start of `data` to be whole."""
    if len(data) < HEADER_SIZE:
        return HEADER_SIZE
    length: int = _HEADER.unpack_from(data, 0)[1]
    return HEADER_SIZE + length


def _last_lsn(segment: SegmentInfo) -> int:
    return segment.last_lsn


def _first_lsn(mark: tuple[int, int]) -> int:
    return mark[0]
