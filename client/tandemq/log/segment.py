"""One log segment: its header and footer, and a reader that verifies every frame it hands out.

A segment holds frames of exactly one term, in LSN order without gaps; only the newest may lack
its footer. Nothing here decides what damage means: the reader names it, recovery judges it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tandemq.log.blocks import (
    FORMAT_VERSION,
    Window,
    block_seed,
    check_owner,
    decode_block,
    encode_fixed,
    unpack,
)
from tandemq.log.disk import ReadDisk
from tandemq.log.meta import Meta
from tandemq.model.bounds import BIG_BYTES
from tandemq.model.errors import StorageError
from tandemq.model.record import (
    FRAME_MAGIC,
    HEADER_SIZE,
    FrameError,
    FrameHeader,
    decode_header,
    frame_body,
    seed_of,
)
from tandemq.model.terms import TERM_FIELDS, Term, is_claim, plain_term
from tandemq.model.units import KIB

HEADER_MAGIC = b"TQh1"
FOOTER_MAGIC = b"TQe1"
#: Fixed sizes: a footer is found from the end of a file, a torn header is known by the length.
SEGMENT_HEADER_SIZE = 1024
FOOTER_SIZE = 160
SUFFIX = ".wal"
#: Every so many bytes a frame's place is kept in mind, so that readers need not start in front.
INDEX_BYTES = 256 * KIB

_MAGICS = re.compile(re.escape(FRAME_MAGIC) + b"|" + re.escape(FOOTER_MAGIC))
_FRAME = struct.Struct(">4sIIIQIQ")
assert _FRAME.size == HEADER_SIZE, "the frame header is laid out in client/tandemq/model/record.py"


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """Who wrote a segment, in which term, and the LSN of its first record."""

    cluster: bytes
    node: bytes
    term: Term
    first_lsn: int


@dataclass(frozen=True, slots=True)
class Footer:
    """What a sealed segment holds. Times are the records' own, in microseconds."""

    first_lsn: int
    last_lsn: int
    first_time_us: int
    last_time_us: int
    frames: int
    records: int


class Behind(NamedTuple):
    """What stands behind damage. position: of the first valid thing, None when there is none.

    last_lsn: the last record of a valid frame there, or the last before the damage; commit_lsn:
    the highest one that a valid frame there tells of, 0 for none.
    """

    position: int | None
    last_lsn: int
    commit_lsn: int


@dataclass(slots=True)
class SegmentInfo:
    """A segment as the log keeps it in mind. `size` in bytes; `last_lsn` < `first_lsn` if empty."""

    name: str
    term: Term
    first_lsn: int
    last_lsn: int
    size: int
    sealed: bool = False
    frames: int = 0
    first_time_us: int = 0
    last_time_us: int = 0
    #: The encoded header: it seeds the footer's CRC.
    header: bytes = field(default=b"", repr=False)
    #: (first LSN, position) of some frames, ascending.
    index: list[tuple[int, int]] = field(default_factory=list, repr=False)

    @property
    def records(self) -> int:
        return self.last_lsn - self.first_lsn + 1

    def footer(self) -> bytes:
        """The footer that seals this segment at its present size."""
        value = [
            self.first_lsn,
            self.last_lsn,
            self.first_time_us,
            self.last_time_us,
            self.frames,
            self.records,
        ]
        return encode_fixed(FOOTER_MAGIC, value, FOOTER_SIZE, block_seed(self.header, self.size))


def segment_name(first_lsn: int) -> str:
    return f"{first_lsn:020d}{SUFFIX}"


def name_lsn(name: str, suffix: str) -> int | None:
    """The LSN a log or snapshot file is named after; None for other files."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != 20 or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)


def segment_names(disk: ReadDisk) -> list[str]:
    """Log segments of a directory, oldest first."""
    return [name for name in disk.list() if name_lsn(name, SUFFIX) is not None]


def encode_segment_header(meta: Meta, term: Term, first_lsn: int) -> bytes:
    """Always `SEGMENT_HEADER_SIZE` bytes. Raises `ValueError` for a node name that is too long."""
    value = {
        "version": FORMAT_VERSION,
        "cluster": meta.cluster,
        "node": meta.node,
        "term": plain_term(term),
        "first_lsn": first_lsn,
    }
    return encode_fixed(HEADER_MAGIC, value, SEGMENT_HEADER_SIZE)


def term_from(value: Any) -> Term:
    """A term out of a verified body. Raises `FrameError` when it is none."""
    if not isinstance(value, list) or len(value) not in (TERM_FIELDS, TERM_FIELDS + 1):
        raise FrameError("term is not a list of six or seven fields")
    term = Term(*value)
    if not is_claim(term.claim):
        raise FrameError("term has a claim nobody knows")
    if not isinstance(term.number, int) or not isinstance(term.id, bytes) or len(term.id) != 16:
        raise FrameError("term has no number or no id of 16 bytes")
    return term


def decode_segment_header(
    data: bytes, name: str, cluster: bytes, node: bytes | None
) -> SegmentHeader:
    """The header in front of `data`. Raises `FrameError` if damaged, `StorageError` if foreign."""
    value = unpack(decode_block(data, 0, HEADER_MAGIC))
    fields = check_owner(name, value, cluster, node)
    term, first_lsn = term_from(fields.get("term")), fields.get("first_lsn")
    if not isinstance(first_lsn, int) or first_lsn < term.start_lsn:
        raise FrameError(f"first LSN {first_lsn} is before its term's {term.start_lsn}")
    return SegmentHeader(fields["cluster"], fields["node"], term, first_lsn)


def whole_in(
    window: Window, position: int, header: FrameHeader, head: bytes, term_id: bytes
) -> tuple[bytes, int]:
    """A buffer and the index in it of the frame at `position`, whole if the file holds it.

    A big one is verified before it is kept. Raises `FrameError`.
    """
    if header.length > BIG_BYTES:
        crc = seed_of(head, term_id)
        window.check_big(position + HEADER_SIZE, header.length, crc, header.crc)
    return window.at(position, HEADER_SIZE + header.length)


def whole_frame(header: FrameHeader, body: memoryview) -> bytes:
    """The frame's bytes as they stand in the file."""
    return _FRAME.pack(FRAME_MAGIC, *header) + body


class SegmentReader:
    """Frames of one segment, front to back, each verified. Memory: a window plus one frame.

    `info` grows as frames are read, so after the last one (or at an error) it describes the valid
    part: `info.size` is where it ends, `info.last_lsn` its last record. Raises `StorageError`
    naming file, position and reason at the first byte that is not as it should be.
    """

    def __init__(
        self, disk: ReadDisk, name: str, meta: Meta, size: int | None = None, rescue: bool = False
    ) -> None:
        """Reads and verifies the header. `rescue`: any node of the cluster may have written it."""
        self._window = Window(disk, name, size)
        self.name = name
        header = disk.read(name, 0, SEGMENT_HEADER_SIZE)
        try:
            fields = decode_segment_header(
                header, name, meta.cluster, None if rescue else meta.node
            )
        except FrameError as error:
            raise StorageError(name, 0, f"segment header: {error.reason}") from error
        if not rescue and segment_name(fields.first_lsn) != name:
            raise StorageError(name, 0, f"header says first LSN {fields.first_lsn}")
        self.term = fields.term
        self.first_lsn = fields.first_lsn
        self.footer: Footer | None = None
        #: The error `frames` ended with, if bytes are not as any writer would have left them.
        self.damage: StorageError | None = None
        self.info = SegmentInfo(
            name,
            fields.term,
            fields.first_lsn,
            fields.first_lsn - 1,
            SEGMENT_HEADER_SIZE,
            header=header,
        )

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self._window.size

    def frames(
        self, start: tuple[int, int] | None = None
    ) -> Iterator[tuple[FrameHeader, memoryview]]:
        """(header, verified body) of each frame, the footer checked at the end.

        `start`: a frame's (first LSN, position) from an index, to begin there; the footer's
        counts are then taken as they are.
        """
        window, info, term_id, number = self._window, self.info, self.term.id, self.term.number
        size, position, mark_at = window.size, SEGMENT_HEADER_SIZE, 0
        if start is not None:
            info.last_lsn, position = start[0] - 1, start[1]
        try:
            while position < size:
                buffer, at = window.at(position, HEADER_SIZE)
                if buffer[at : at + 4] == FOOTER_MAGIC:
                    self._check_footer(position, start is None)
                    return
                header = decode_header(buffer, at)
                total = HEADER_SIZE + header.length
                if at + total > len(buffer):
                    buffer, at = whole_in(window, position, header, buffer[at:], term_id)
                body = frame_body(buffer, at, header, term_id)
                if header.first_lsn <= info.last_lsn:
                    raise FrameError(f"stale frame: LSN {header.first_lsn} follows {info.last_lsn}")
                if (
                    header.term != number
                    or header.first_lsn != info.last_lsn + 1
                    or not header.count
                ):
                    raise StorageError(
                        self.name,
                        position,
                        f"{header.count} records of term {header.term} from LSN {header.first_lsn} "
                        f"follow LSN {info.last_lsn} of term {number}",
                    )
                if position >= mark_at:
                    info.index.append((header.first_lsn, position))
                    mark_at = position + INDEX_BYTES
                position += total
                info.size = position
                info.last_lsn += header.count
                info.frames += 1
                yield header, body
        except FrameError as error:
            self.damage = StorageError(self.name, position, error.reason)
            raise self.damage from error

    def _check_footer(self, position: int, counted: bool) -> None:
        """The footer must be whole, the last thing in the file, and agree with the frames."""
        footer = self._footer_at(position)
        if (behind := self.size - position - FOOTER_SIZE) > 0:
            raise StorageError(self.name, position, f"{behind} bytes follow the footer")
        info = self.info
        said = (footer.first_lsn, footer.last_lsn, footer.frames, footer.records)
        read = (info.first_lsn, info.last_lsn, info.frames, info.records)
        if counted and said != read:
            raise StorageError(
                self.name,
                position,
                f"footer says {said} (LSNs, frames, records), the file holds {read}",
            )
        self._seal(footer)

    def _footer_at(self, position: int) -> Footer:
        buffer, at = self._window.at(position, FOOTER_SIZE)
        value = unpack(
            decode_block(buffer, at, FOOTER_MAGIC, block_seed(self.info.header, position))
        )
        if not isinstance(value, list) or len(value) != 6:
            raise FrameError("footer is not a list of six numbers")
        return Footer(*value)

    def _seal(self, footer: Footer) -> None:
        self.footer = footer
        self.info.sealed = True
        self.info.size = self.size
        self.info.first_time_us = footer.first_time_us
        self.info.last_time_us = footer.last_time_us

    def peek_footer(self) -> Footer | None:
        """The footer of a sealed segment, found from the end; None when it has none there."""
        position = self.size - FOOTER_SIZE
        if position < SEGMENT_HEADER_SIZE:
            return None
        try:
            footer = self._footer_at(position)
        except FrameError:
            return None
        return footer if footer.first_lsn == self.first_lsn else None

    def skip(self, footer: Footer) -> None:
        """Take the footer's word for the whole segment, its frames unread."""
        self.info.last_lsn = footer.last_lsn
        self.info.frames = footer.frames
        self._seal(footer)

    def follows_valid(self, position: int) -> int | None:
        """Where, behind the damage at `position`, something valid stands; None if nothing does."""
        return self.behind(position).position

    def behind(self, position: int) -> Behind:
        """What valid things stand behind the damage at `position`.

        Pages that were never synced may reach the disk in any order, so a valid frame alone does
        not prove that the damage was once durable; what it says of the commit LSN does.
        """
        data, base = self._window.at(position, self.size - position)
        end = base + self.size - position
        first: int | None = None
        last_lsn = self.info.last_lsn
        commit_lsn = 0
        at = base + 1
        while (found := _MAGICS.search(data, at, end)) is not None:
            at, magic = found.start(), found.group()
            if not self._valid_at(data, at, position + at - base, magic):
                at += 1
                continue
            if first is None:
                first = position + at - base
            if magic == FOOTER_MAGIC:
                at += FOOTER_SIZE
                continue
            header = decode_header(data, at)
            last_lsn = max(last_lsn, header.last_lsn)
            commit_lsn = max(commit_lsn, header.commit_lsn)
            at += HEADER_SIZE + header.length
        return Behind(first, last_lsn, commit_lsn)

    def _valid_at(self, data: bytes, at: int, position: int, magic: bytes) -> bool:
        try:
            if magic == FOOTER_MAGIC:
                decode_block(data, at, FOOTER_MAGIC, block_seed(self.info.header, position))
                return True
            header = decode_header(data, at)
            if header.term != self.term.number or header.first_lsn <= self.info.last_lsn:
                return False
            frame_body(data, at, header, self.term.id)
        except FrameError:
            return False
        return True
