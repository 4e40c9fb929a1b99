"""Looking through one segment without decoding it: its frames, and the tubes it creates.

Only frames that may create a tube are decoded. No Spark here.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from tandemq.log.meta import Meta
from tandemq.log.segment import FOOTER_SIZE, SEGMENT_HEADER_SIZE, SegmentReader
from tandemq.model.errors import StorageError
from tandemq.model.record import (
    CREATE,
    HEADER_SIZE,
    FrameError,
    FrameHeader,
    decode_body,
    decode_header,
    frame_body,
)
from tandemq.spark.disk import ArrowDisk

#: How a create op begins: an array of six and its code, then a space id of 16 or 32 bits.
_PAIR = np.dtype("<u2")
_CREATE = 0x96 | CREATE << 8
_WIDE = (0xCD, 0xCE)

Spaces = dict[int, tuple[str, str]]
#: Sealed segments this process has looked through, and the tubes they create: header, footer and
#: size say that it is the same one still.
SCANNED_MAX = 10_000
_scanned: dict[Any, tuple[Segment, Spaces]] = {}


@dataclass
class Segment:
    """A segment as planning sees it. `valid_end`: byte behind its last whole frame."""

    name: str
    term: Any
    first_lsn: int
    last_lsn: int
    valid_end: int
    sealed: bool
    times: tuple[int, int] | None
    marks: list[tuple[int, int]]


def scan(
    disk: ArrowDisk, meta: Meta, name: str, spaces: Spaces, split: int, rescue: bool = False
) -> Segment:
    """Look through a segment: where frames are, which tubes it creates (added to `spaces`).

    Frames are not verified, except the last one of an unsealed segment: a torn one is left out.
    Raises `StorageError` for a damaged header, and where something else than a frame stands.
    """
    reader = SegmentReader(disk, name, meta, rescue=rescue)
    footer = reader.peek_footer()
    key = (disk.where, name, split, reader.size, reader.info.header, footer)
    if key in _scanned:
        segment, created = _scanned[key]
        spaces |= created
        return segment
    frames = _Frames(disk, name, reader, footer is not None, split)
    try:
        frames.hop()
    finally:
        # Also of a segment that is damaged further on.
        created = frames.creations()
        spaces |= created
    times = (footer.first_time_us, footer.last_time_us) if footer is not None else None
    place = (reader.first_lsn, frames.last_lsn, frames.position)
    segment = Segment(name, reader.term, *place, footer is not None, times, frames.marks)
    if footer is not None:
        if len(_scanned) >= SCANNED_MAX:
            _scanned.clear()
        _scanned[key] = segment, created
    return segment


class _Frames:
    """Where the frames of a segment begin, found from header to header.

    position: behind the last whole frame. marks: (LSN, byte) of a frame every `split` bytes.
    """

    def __init__(
        self, disk: ArrowDisk, name: str, reader: SegmentReader, sealed: bool, split: int
    ) -> None:
        self.disk, self.name, self.reader, self.sealed = disk, name, reader, sealed
        self.split, self.mark_at = split, 0
        self.position, self.last_lsn = SEGMENT_HEADER_SIZE, reader.first_lsn - 1
        self.end = reader.size - FOOTER_SIZE if sealed else reader.size
        self.marks: list[tuple[int, int]] = []
        self.starts: list[int] = []
        #: Where a create op may stand.
        self.suspects: list[int] = []

    def hop(self) -> None:
        """Go through the file once. Raises `StorageError`."""
        for base, window in self.disk.windows(self.name, self.end, HEADER_SIZE):
            self.suspects += [base + at for at in _creates(window)]
            if not self._hops(base, window):
                return
        if self.position < self.end:
            self._torn(FrameError("header is cut short", torn=True))

    def _hops(self, base: int, window: memoryview) -> bool:
        """The frames whose headers are in this window; False where the last frame is torn."""
        while (at := self.position - base) + HEADER_SIZE <= len(window):
            try:
                header = decode_header(window, at)
            except FrameError as error:
                self._torn(error)
                return False
            behind = self.position + HEADER_SIZE + header.length
            if behind > self.end and self.sealed:
                raise StorageError(self.name, self.position, "a frame reaches into the footer")
            if behind > self.end or (
                behind == self.end and not self.sealed and not self._whole(header)
            ):
                return False
            if self.position >= self.mark_at:
                self.marks.append((header.first_lsn, self.position))
                self.mark_at = self.position + self.split
            self.starts.append(self.position)
            self.position, self.last_lsn = behind, header.last_lsn
        return True

    def _torn(self, error: FrameError) -> None:
        """Fine if what stands there is the torn end of a write. Raises `StorageError`."""
        reader = self.reader
        reader.info.last_lsn = max(reader.info.last_lsn, reader.first_lsn - 1)
        if self.sealed or reader.follows_valid(self.position) is not None:
            raise StorageError(self.name, self.position, error.reason) from error

    def _whole(self, header: FrameHeader) -> bool:
        data = self.disk.read(self.name, self.position, HEADER_SIZE + header.length)
        try:
            frame_body(data, 0, header, self.reader.term.id)
        except FrameError:
            return False
        return True

    def creations(self) -> Spaces:
        """The tubes that frames create. What is damaged is told of when it is read."""
        found: Spaces = {}
        ends = [*self.starts[1:], self.position]
        places = [bisect_right(self.starts, at) - 1 for at in self.suspects if at < self.position]
        for place in sorted(set(places) - {-1}):
            start = self.starts[place]
            data = self.disk.read(self.name, start, ends[place] - start)
            try:
                header = decode_header(data)
                records = decode_body(
                    frame_body(data, 0, header, self.reader.term.id), header.count
                )
            except FrameError:
                continue
            for _, _, _, ops in records:
                for op in ops:
                    if op[0] == CREATE:
                        found[op[1]] = (op[2], op[3])
        return found


def _creates(window: memoryview) -> list[int]:
    """Where a create op may begin: an array of six, its code, and a space id of 16 or 32 bits."""
    found: list[int] = []
    for odd in (0, 1):
        pairs = np.frombuffer(window[odd : odd + (len(window) - odd) // 2 * 2], _PAIR)
        hits = np.flatnonzero(pairs == _CREATE) * 2 + odd
        found += [at for at in hits.tolist() if at + 2 < len(window) and window[at + 2] in _WIDE]
    return found
