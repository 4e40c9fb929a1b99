"""Frames of a segment that have certain bytes in them, at the speed at which memory is searched.

Nothing is kept beside the log: the bytes are sought in the whole segment, and the frame around
each place is found backwards by its magic and proved by its CRC. Frames without them are not looked
at, so their damage is not seen; `tandemq log verify` reads everything.
Must not be here: what the bytes mean (storage.past).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tandemq.log.disk import ReadDisk
from tandemq.log.meta import Meta
from tandemq.log.segment import FOOTER_MAGIC, FOOTER_SIZE, SEGMENT_HEADER_SIZE, SegmentReader
from tandemq.model.errors import StorageError
from tandemq.model.record import (
    FRAME_MAGIC,
    HEADER_SIZE,
    FrameError,
    FrameHeader,
    decode_header,
    frame_body,
)

Needle = bytes | re.Pattern[bytes]


#: A piece that stays in the processor's cache, and how long what is sought in it may be.
_PIECE, _SOUGHT_MAX = 1 << 20, 128


class SearchedSegment:
    """One segment to be searched. Raises StorageError for a header that is not right."""

    def __init__(self, disk: ReadDisk, name: str, meta: Meta, size: int) -> None:
        self.term = SegmentReader(disk, name, meta, size).term
        self.name, self._disk = name, disk
        self.problems: list[str] = []
        # Its footer has LSNs, which look like ids. It is passed over: a copy without it takes long.
        footer = disk.read(name, max(0, size - FOOTER_SIZE), FOOTER_SIZE)
        self._end = size - (FOOTER_SIZE if footer.startswith(FOOTER_MAGIC) else 0)
        self._whole = b""

    @property
    def _data(self) -> bytes:
        """All of it, in memory from the first search on."""
        if not self._whole:
            self._whole = self._disk.read(self.name, 0, self._end)
            self._end = len(self._whole)
        return self._whole

    def has_any(self, needles: Iterable[Needle]) -> bool:
        """Whether one of them, at most 128 bytes long, is in it: a third quicker than `frames`.

        Most segments have nothing of what is sought. So they are looked through a piece at a time,
        which is read where the one before was, and from the back, which compares a byte less.
        """
        wanted, at = list(needles), SEGMENT_HEADER_SIZE
        while at < self._end:
            piece = self._disk.read(self.name, at, min(_PIECE, self._end - at))
            for needle in wanted:
                if isinstance(needle, bytes):
                    if piece.rfind(needle) >= 0:
                        return True
                elif needle.search(piece) is not None:
                    return True
            at += _PIECE - _SOUGHT_MAX
        return False

    def frames(self, needles: Iterable[Needle]) -> Iterator[tuple[FrameHeader, bytes]]:
        """Header and verified body of each frame with any of them, in the log's order.

        One that stands outside of every whole frame is a problem, and passed over.
        """
        wanted = list(needles)
        end = SEGMENT_HEADER_SIZE
        places = [self._next(needle, end) for needle in wanted]
        while (place := min(places, default=self._end)) < self._end:
            found = self._around(place, end)
            if found is None:
                text = "it is in no whole frame: see `tandemq log verify`"
                self.problems.append(str(StorageError(self.name, place, text)))
                end = place + 1
            else:
                header, body, end = found
                yield header, bytes(body)
            places = [
                at if at >= end else self._next(needle, end)
                for needle, at in zip(wanted, places, strict=True)
            ]

    def _next(self, needle: Needle, start: int) -> int:
        """Where it stands from `start` on; behind everything, if nowhere."""
        if isinstance(needle, bytes):
            at = self._data.find(needle, start, self._end)
        else:
            found = needle.search(self._data, start, self._end)
            at = found.start() if found else -1
        return at if at >= 0 else self._end

    def _around(self, place: int, lowest: int) -> tuple[FrameHeader, memoryview, int] | None:
        """The frame that `place` is in, and where it ends: payloads may have its magic, too."""
        start = place + len(FRAME_MAGIC)
        while (start := self._data.rfind(FRAME_MAGIC, lowest, start)) >= 0:
            try:
                header = decode_header(self._data, start)
                end = start + HEADER_SIZE + header.length
                if place < end and header.term == self.term.number:
                    return header, frame_body(self._data, start, header, self.term.id), end
            except FrameError:
                pass
            start += len(FRAME_MAGIC) - 1
        return None
