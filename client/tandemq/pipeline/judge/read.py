"""Reading a data directory for the judge: every byte verified, frames in order, damage told of.

Segments are read whole. What stands behind damage in a segment is left out; bytes at the end of the
newest segment that are no whole frame are a write under way.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tandemq.log.meta import Meta, read_commit
from tandemq.log.rescue import rescue_names
from tandemq.log.segment import FOOTER_SIZE, SEGMENT_HEADER_SIZE, SegmentReader, segment_names
from tandemq.log.snapshot import snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.record import FRAME_MAGIC, HEADER_SIZE, FrameHeader
from tandemq.model.terms import Term
from tandemq.pipeline.judge.rules.base import Breach
from tandemq.spark.disk import ArrowDisk
from tandemq.spark.logs import meta_of, node_name

_HEADER = struct.Struct(">4sIIIQIQ")
_NO_CRC = bytes(4)


@dataclass
class SegmentFrames:
    """A segment's frames: headers, and where their bodies begin in `data`.

    sums: CRC of each body, where asked for.
    """

    name: str
    term: Term
    data: bytes
    frames: list[tuple[FrameHeader, int]] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)
    #: First byte behind the last whole frame; whether something is wrong there.
    end: int = SEGMENT_HEADER_SIZE

    @property
    def first_lsn(self) -> int:
        return self.frames[0][0].first_lsn

    @property
    def last_lsn(self) -> int:
        return self.frames[-1][0].last_lsn


class NodeLog:
    """One node's directory. `problems` grows while `parts` are read."""

    def __init__(self, path: str) -> None:
        """Raises `StorageError` for what is no data directory."""
        self.disk = ArrowDisk(path)
        self.path = path
        names = self.disk.list()
        self.meta: Meta = meta_of(self.disk, names)
        self.node = node_name(self.meta.node)
        self.names = segment_names(self.disk)
        self.snapshots = snapshot_names(self.disk)
        self.rescues = rescue_names(self.disk)
        self.problems: list[Breach] = []
        lsn, problem = read_commit(self.disk)
        self.commit_lsn = lsn if problem is None and lsn else None

    def tell(self, rule: str, lsn: int | None, text: str) -> None:
        self.problems.append(Breach(rule, lsn=lsn, node=self.node, text=text))

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return sum(self.disk.size(name) for name in self.names)

    def last_lsn(self) -> int:
        """Of the newest whole record, 0 for none; only the last segment's frames are read."""
        for name in reversed(self.names):
            try:
                reader = SegmentReader(self.disk, name, self.meta)
                footer = reader.peek_footer()
                if footer is not None:
                    return footer.last_lsn
                part = read_part(self, name, False, lambda *_: None)
            except StorageError:
                continue
            if part is not None and part.frames:
                return part.last_lsn
        return 0

    def first_lsn(self) -> int:
        return int(self.names[0].partition(".")[0]) if self.names else 0

    def term_at(self, lsn: int) -> bytes | None:
        """Id of the term the segment with this LSN is of; None where there is none."""
        found = [name for name in self.names if int(name.partition(".")[0]) <= lsn]
        try:
            reader = SegmentReader(self.disk, found[-1], self.meta)
        except (IndexError, StorageError):
            return None
        return reader.term.id if self.last_lsn() >= lsn else b""

    def parts(self, sums: bool = False, after: int = 0) -> Iterator[SegmentFrames]:
        """Segments in order, each told of if it is damaged or does not follow the one before.

        after: segments that end at or before this LSN are left out.
        """
        due: int | None = None
        term: Term | None = None
        seen: dict[int, bytes] = {}
        nexts = [*(int(name.partition(".")[0]) for name in self.names[1:]), 2**63]
        for name, following in zip(self.names, nexts, strict=True):
            if following <= after + 1:
                due = None
                continue
            part = read_part(self, name, sums, self.tell)
            if part is None:
                due = None
                continue
            self._check_term(part, term, seen)
            term = part.term
            if not part.frames:
                continue
            if due is not None and part.first_lsn > due:
                self.tell("lsn_gap", due, f"LSN {due} up to {part.first_lsn - 1} are missing")
            elif due is not None and part.first_lsn < due:
                self.tell("lsn_twice", part.first_lsn, f"{name} begins before LSN {due}")
            due = part.last_lsn + 1
            yield part

    def _check_term(self, part: SegmentFrames, before: Term | None, seen: dict[int, bytes]) -> None:
        term = part.term
        if seen.setdefault(term.number, term.id) != term.id:
            text = f"term {term.number} is {seen[term.number].hex()} and {term.id.hex()}"
            self.tell("forked_lineage", term.start_lsn, text)
        if before is None or before.id == term.id:
            return
        if term.number < before.number:
            self.tell("term_order", part.first_lsn if part.frames else None, part.name)
        if term.parent != before.id:
            parent = term.parent.hex() if term.parent else None
            text = f"parent is {parent}, the term before is {before.id.hex()}"
            self.tell("forked_lineage", term.start_lsn, text)

    def rescued(self) -> Iterator[SegmentFrames]:
        """The rescue files."""
        for name in self.rescues:
            part = read_part(self, name, False, self.tell, rescue=True)
            if part is not None and part.frames:
                yield part


Tell = Callable[[str, "int | None", str], None]


def read_part(
    log: NodeLog, name: str, sums: bool, tell: Tell, rescue: bool = False
) -> SegmentFrames | None:
    """One segment; None where not even its header can be read."""
    last = rescue or name == log.names[-1]
    try:
        reader = SegmentReader(log.disk, name, log.meta, rescue=rescue)
        footer = reader.peek_footer()
        data = log.disk.read(name)
    except StorageError as error:
        if not (last and log.disk.size(name) <= SEGMENT_HEADER_SIZE):
            tell("damaged", None, str(error))
        return None
    part = SegmentFrames(name, reader.term, data)
    walk(part, reader.first_lsn, len(data) - (FOOTER_SIZE if footer is not None else 0), sums)
    stop = part.end
    if footer is not None and stop == len(data) - FOOTER_SIZE:
        if (footer.last_lsn, footer.frames) != (
            part.frames[-1][0].last_lsn if part.frames else footer.last_lsn,
            len(part.frames),
        ):
            tell("damaged", footer.first_lsn, f"{name}: byte {stop}: footer says {footer}")
        return part
    if stop == len(data) and last:
        return part
    if footer is None and last and reader_after(log, name, part, rescue) is None:
        return part
    due = part.last_lsn + 1 if part.frames else reader.first_lsn
    tell("damaged", due, f"{name}: byte {stop}: no whole frame of LSN {due}")
    return part


def reader_after(log: NodeLog, name: str, part: SegmentFrames, rescue: bool) -> int | None:
    """Where something valid stands behind the end of the whole frames; None: a write under way."""
    reader = SegmentReader(log.disk, name, log.meta, rescue=rescue)
    reader.info.last_lsn = part.last_lsn if part.frames else reader.first_lsn - 1
    return reader.follows_valid(part.end)


def walk(part: SegmentFrames, first_lsn: int, stop: int, sums: bool) -> None:
    """The frames up to byte `stop`, as far as they are whole, verified and in order."""
    data, view = part.data, memoryview(part.data)
    crc32, unpack = zlib.crc32, _HEADER.unpack_from
    seed, number = crc32(part.term.id), part.term.number
    at, due, frames = SEGMENT_HEADER_SIZE, first_lsn, part.frames
    while at + HEADER_SIZE <= stop:
        magic, length, crc, term, first, count, commit = unpack(data, at)
        body = at + HEADER_SIZE
        behind = body + length
        if magic != FRAME_MAGIC or term != number or first != due or not count or behind > stop:
            break
        found = crc32(_NO_CRC, crc32(view[at : at + 8], crc32(view[at + 16 : at + 24], seed)))
        if crc32(view[at + 12 : behind], found) != crc:
            break
        frames.append((FrameHeader(length, crc, term, first, count, commit), body))
        if sums:
            part.sums.append(crc32(view[body:behind]))
        at, due = behind, due + count
    part.end = at
