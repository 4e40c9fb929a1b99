"""From segments to chunks of records, as large as the replay likes them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

import msgpack
import numpy as np

from tandemq.model.errors import GaveUp
from tandemq.model.record import FrameError
from tandemq.model.units import MIB
from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.read import SegmentFrames
from tandemq.pipeline.judge.shred import shred
from tandemq.pipeline.judge.table import Ints
from tandemq.pipeline.judge.world import Chunk

#: Bytes of frames that make a chunk, at most, but for a frame that is larger.
CHUNK_BYTES = 48 * MIB
#: Logs of more bytes than this are worth loading compiled code for.
WORTH_COMPILING = 6 * MIB


class RecordBytes:
    """Where the records of a chunk stand, to show them and to decode what is rare."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.datas: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> int:
        """The number that is added to places in `data`."""
        base = self.size
        self.bases.append(base)
        self.datas.append(data)
        self.size += len(data)
        return base

    def bytes_of(self, start: int, end: int) -> bytes:
        at = bisect_right(self.bases, start) - 1
        return self.datas[at][start - self.bases[at] : end - self.bases[at]]


def unpacked(data: bytes) -> list[Any]:
    """A record's four fields."""
    found: list[Any] = msgpack.unpackb(
        data, raw=False, strict_map_key=False, unicode_errors="surrogateescape"
    )
    return found


class SourceChunk(Chunk):
    """A chunk that can show its records."""

    def __init__(self, records: Ints, lines: Ints, source: RecordBytes, node: str) -> None:
        super().__init__(records, lines, self._ops, node)
        self.source = source

    def record(self, rec: int) -> list[Any]:
        start, end = self.records[w.R_START][rec], self.records[w.R_END][rec]
        return unpacked(self.source.bytes_of(int(start), int(end)))

    def _ops(self, rec: int) -> list[Any]:
        ops: list[Any] = self.record(rec)[3]
        return ops

    def cut(self, lsn: int) -> tuple[SourceChunk, SourceChunk]:
        """The records up to an LSN, and those behind it."""
        at = int(np.searchsorted(self.records[w.R_LSN], lsn, "right"))
        line = int(np.searchsorted(self.lines[w.REC], at))
        behind = self.lines[:, line:].copy()
        behind[w.REC] -= at
        return (
            SourceChunk(self.records[:, :at], self.lines[:, :line], self.source, self.node),
            SourceChunk(self.records[:, at:], behind, self.source, self.node),
        )

    @property
    def last_lsn(self) -> int:
        return int(self.records[w.R_LSN][-1])


def chunks(
    parts: Iterable[SegmentFrames], node: str, compiled: bool, first_lsn: int, marks: Iterable[int]
) -> Iterator[SourceChunk]:
    """Chunks of the parts' records from `first_lsn` on; one ends at each of the LSNs in `marks`.

    Raises `FrameError` for a frame that holds no records.
    """
    wanted = sorted(marks)
    for whole in _whole(parts, node, compiled):
        chunk = whole
        if int(chunk.records[w.R_LSN][0]) < first_lsn:
            chunk = chunk.cut(first_lsn - 1)[1]
        for mark in wanted:
            if chunk.records.shape[1] and chunk.records[w.R_LSN][0] <= mark < chunk.last_lsn:
                before, chunk = chunk.cut(mark)
                yield before
        if chunk.records.shape[1]:
            yield chunk


def _whole(parts: Iterable[SegmentFrames], node: str, compiled: bool) -> Iterator[SourceChunk]:
    waiting: list[tuple[SegmentFrames, int, int]] = []
    room = CHUNK_BYTES
    for part in parts:
        start, begun = 0, 0
        for number, (header, _) in enumerate(part.frames):
            begun += header.length
            if begun > room:
                waiting.append((part, start, number + 1))
                yield _chunk(waiting, node, compiled)
                waiting, room, start, begun = [], CHUNK_BYTES, number + 1, 0
        if start < len(part.frames):
            waiting.append((part, start, len(part.frames)))
            room -= begun
    if waiting:
        yield _chunk(waiting, node, compiled)


def _chunk(waiting: list[tuple[SegmentFrames, int, int]], node: str, compiled: bool) -> SourceChunk:
    source, records, lines, count = RecordBytes(), [], [], 0
    for part, start, stop in waiting:
        base = source.add(part.data)
        ours, theirs = _shred(part, start, stop, compiled)
        ours[w.R_START] += base
        ours[w.R_END] += base
        theirs[w.REC] += count
        count += ours.shape[1]
        records.append(ours)
        lines.append(theirs)
    if len(records) == 1:
        return SourceChunk(records[0], lines[0], source, node)
    joined = np.concatenate(records, axis=1), np.concatenate(lines, axis=1)
    return SourceChunk(*joined, source, node)


def _shred(part: SegmentFrames, start: int, stop: int, compiled: bool) -> tuple[Ints, Ints]:
    frames = part.frames[start:stop]
    if compiled:
        try:
            from tandemq.pipeline.judge.shred_compiled import shred_fast
        except (ImportError, RuntimeError):  # no numba, or no folder for its cache
            return shred(part.data, frames)
        try:
            return shred_fast(part.data, frames)
        except GaveUp:
            pass
    return shred(part.data, frames)


__all__ = ["FrameError", "RecordBytes", "SourceChunk", "chunks", "unpacked"]
