"""Snapshots: their names, their order, and reading one back block by block.

A snapshot interleaves rows with the log frames committed meanwhile; read in order, rows as
upserts and frames leniently, it gives exactly the state at its end LSN. What rows mean is
decided elsewhere. `snapshot_writer.py` makes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack

from tandemq.log.blocks import (
    BLOCK_SIZE,
    WINDOW_BYTES,
    Window,
    big_block_crc,
    block_length,
    block_seed,
    check_owner,
    decode_block,
    unpack,
)
from tandemq.log.disk import RESCUE_PREFIX, SUFFIX_DAMAGED, Disk, ReadDisk, remove_durably
from tandemq.log.meta import Meta
from tandemq.log.segment import FOOTER_MAGIC, HEADER_MAGIC, name_lsn, term_from, whole_in
from tandemq.model.bounds import BIG_BYTES, FRAME_BODY_BYTES_AIM
from tandemq.model.errors import StorageError
from tandemq.model.record import (
    FRAME_MAGIC,
    HEADER_SIZE,
    FrameError,
    FrameHeader,
    decode_body,
    decode_header,
    frame_body,
)
from tandemq.model.terms import Term

CATALOGUE_MAGIC = b"TQc1"
ROWS_MAGIC = b"TQr1"
TERM_MAGIC = b"TQt1"
SUFFIX = ".snap"
SNAPSHOTS_KEPT = 2
#: Enough for what stands in front of the rows of a block.
ROWS_START_BYTES = 32


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """Who wrote it, the terms up to its start, and the LSN after which its frames begin."""

    cluster: bytes
    node: bytes
    lineage: tuple[Term, ...]
    start_lsn: int


def snapshot_name(end_lsn: int) -> str:
    return f"{end_lsn:020d}{SUFFIX}"


def snapshot_names(disk: ReadDisk) -> list[str]:
    """Published snapshots of a directory, oldest first."""
    return [name for name in disk.list() if name_lsn(name, SUFFIX) is not None]


def prune(disk: Disk, keep: int = SNAPSHOTS_KEPT) -> list[str]:
    """Remove all but the newest `keep` snapshots, oldest first. Returns their names."""
    gone = snapshot_names(disk)[:-keep]
    for name in gone:
        remove_durably(disk, name)
    return gone


def put_bad_aside(disk: Disk, cluster: bytes, good: set[str]) -> list[StorageError]:
    """Read every snapshot that is not known to be `good`; rename what cannot be read.

    `good` is brought up to date. Returns what is wrong with each that was put aside.
    """
    names = snapshot_names(disk)
    good.intersection_update(names)
    bad: list[StorageError] = []
    for name in names:
        if name in good:
            continue
        try:
            verify_snapshot(disk, name, cluster)
        except StorageError as error:
            put_aside(disk, name)
            bad.append(error)
        else:
            good.add(name)
    return bad


def put_aside(disk: Disk, name: str, as_name: str | None = None) -> str:
    """Keep a damaged file for a person to look at, where nothing takes it for a good one."""
    aside = (as_name or name) + SUFFIX_DAMAGED
    disk.rename(name, aside)
    disk.sync_dir()
    return aside


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """The last block: where the state stands, and what must have been read until here."""

    end_lsn: int
    rows: int
    time_us: int
    blocks: int


class SnapshotReader:
    """Blocks of one snapshot in order, each verified. Memory: a window plus one block.

    Rows that older versions put into one block may be many: of a big one `body` is None, and
    `big_rows` gives them piece by piece. Raises `StorageError` naming file, position and reason.
    `end` is set once all was read.
    """

    def __init__(
        self, disk: ReadDisk, name: str, cluster: bytes, published: str | None = None
    ) -> None:
        """Reads the header; any node of `cluster` may have written it (bootstrap copies).

        `published`: the name it is to have, for one that stands under another still.
        """
        self.name = name
        self._published = published or name
        self._rows = 0
        self._window = Window(disk, name)
        self.end: SnapshotFooter | None = None
        try:
            buffer, _ = self._window.at(0, BLOCK_SIZE)
            length = block_length(buffer, 0)
            buffer, _ = self._window.at(0, BLOCK_SIZE + length)
            fields = check_owner(name, unpack(decode_block(buffer, 0, HEADER_MAGIC)), cluster, None)
            lineage = fields.get("lineage")
            if fields.get("kind") != "snapshot" or not isinstance(lineage, list):
                raise FrameError("header is not that of a snapshot")
            terms = tuple(term_from(term) for term in lineage)
            self.header = SnapshotHeader(
                fields["cluster"], fields["node"], terms, int(fields["start_lsn"])
            )
        except FrameError as error:
            raise StorageError(name, 0, error.reason) from error
        self.lineage = list(terms)
        self.position = BLOCK_SIZE + length
        self._header_bytes = buffer[: self.position]
        self.last_lsn = self.header.start_lsn

    @property
    def size(self) -> int:
        """Bytes of the whole file; `position` says how far it was read."""
        return self._window.size

    def blocks(self) -> Iterator[tuple[bytes, FrameHeader | None, memoryview | None]]:
        """(magic, frame header if it is one, verified body) of each block, the end included."""
        count = 0
        try:
            while self.end is None:
                magic, frame, body, size = self._next()
                if frame is not None:
                    self.last_lsn = frame.last_lsn
                elif magic == ROWS_MAGIC:
                    self._rows += self._start_rows(self._rows_body(body, size))[1]
                elif body is not None and magic == TERM_MAGIC:
                    self.lineage.append(term_from(unpack(body)))
                elif body is not None and magic == FOOTER_MAGIC:
                    self._check_end(body, count, self.position + size)
                self.position += size
                count += 1
                self._size = size
                yield magic, frame, body
        except FrameError as error:
            raise StorageError(self.name, self.position, error.reason) from error

    def big_rows(self) -> Iterator[tuple[int, list[Any]]]:
        """(space id, some rows) of the block at hand, whose body is None."""
        size = self._size
        body = self._window.pieces(self.position - size + BLOCK_SIZE, size - BLOCK_SIZE)
        unpacker = msgpack.Unpacker(
            body,
            read_size=WINDOW_BYTES,
            raw=False,
            strict_map_key=False,
            unicode_errors="surrogateescape",
            max_buffer_size=0,
        )
        space_id, count = self._start_rows(unpacker)
        rows: list[Any] = []
        began = unpacker.tell()
        for left in range(count, 0, -1):
            rows.append(unpacker.unpack())
            if unpacker.tell() - began >= FRAME_BODY_BYTES_AIM or left == 1:
                yield space_id, rows
                rows, began = [], unpacker.tell()

    def _rows_body(self, body: memoryview | None, size: int) -> msgpack.Unpacker:
        """For the numbers in front of rows."""
        unpacker = msgpack.Unpacker(read_size=ROWS_START_BYTES)
        if body is None:
            start = self._window.pieces(self.position + BLOCK_SIZE, size - BLOCK_SIZE)
            unpacker.feed(start.read(ROWS_START_BYTES))
        else:
            unpacker.feed(body[:ROWS_START_BYTES])
        return unpacker

    def _start_rows(self, unpacker: msgpack.Unpacker) -> tuple[int, int]:
        """(space id, how many rows follow). Raises `FrameError`."""
        try:
            if unpacker.read_array_header() == 2:
                return unpacker.unpack(), unpacker.read_array_header()
        except Exception as error:
            raise FrameError(f"rows are not MessagePack: {error}") from error
        raise FrameError("rows are not a space and a list")

    def _next(self) -> tuple[bytes, FrameHeader | None, memoryview | None, int]:
        """(magic, frame header, verified body, size in bytes) of the block at the position."""
        window, position = self._window, self.position
        buffer, at = window.at(position, HEADER_SIZE)
        magic = buffer[at : at + 4]
        if magic == FRAME_MAGIC:
            header = decode_header(buffer, at)
            total = HEADER_SIZE + header.length
            term = next((t for t in reversed(self.lineage) if t.number == header.term), None)
            if term is None:
                raise FrameError(f"frame of term {header.term}, which is not in the lineage")
            buffer, at = whole_in(window, position, header, buffer[at : at + HEADER_SIZE], term.id)
            body = frame_body(buffer, at, header, term.id)
            if header.first_lsn != self.last_lsn + 1 or not header.count:
                raise FrameError(f"LSN {header.first_lsn} follows {self.last_lsn}")
            return magic, header, body, total
        if magic not in (CATALOGUE_MAGIC, ROWS_MAGIC, TERM_MAGIC, FOOTER_MAGIC):
            if len(magic) < 4:
                raise FrameError("snapshot ends without its end block", torn=True)
            raise FrameError(f"not a block of a snapshot: magic {magic!r}")
        length = block_length(buffer, at)
        total, seed = BLOCK_SIZE + length, block_seed(self._header_bytes, position)
        if length > BIG_BYTES:
            window.check_big(position + BLOCK_SIZE, length, *big_block_crc(buffer, at, seed))
            if magic == ROWS_MAGIC:
                return magic, None, None, total
        buffer, at = window.at(position, total)
        return magic, None, decode_block(buffer, at, magic, seed), total

    def _check_end(self, body: memoryview, blocks: int, end: int) -> None:
        value = unpack(body)
        if not isinstance(value, list) or len(value) != 4:
            raise FrameError("end block is not a list of four numbers")
        said = SnapshotFooter(*value)
        if (said.end_lsn, said.blocks) != (self.last_lsn, blocks):
            raise FrameError(
                f"end block says {said}, read were LSN {self.last_lsn}, {blocks} blocks"
            )
        if said.rows != self._rows:
            raise FrameError(f"end block says {said.rows} rows, read were {self._rows}")
        # One that a rescue moved keeps the LSN in front of its name.
        if not self._published.removeprefix(RESCUE_PREFIX).startswith(f"{said.end_lsn:020d}"):
            raise FrameError(f"end block says LSN {said.end_lsn}")
        if end != self.size:
            raise FrameError(f"{self.size - end} bytes follow the end block")
        self.end = said


def verify_snapshot(
    disk: ReadDisk, name: str, cluster: bytes, published: str | None = None
) -> SnapshotFooter:
    """Check every CRC and count the rows without decoding them. Raises `StorageError`.

    `published`: the name it is to have, for one that stands under another still.
    """
    reader = SnapshotReader(disk, name, cluster, published)
    for _ in reader.blocks():
        pass
    assert reader.end is not None
    return reader.end


def read_snapshot(disk: ReadDisk, name: str, meta: Meta) -> Iterator[tuple[Any, ...]]:
    """The content in order, each part verified before it is handed out:

    ('header', SnapshotHeader), ('catalogue', ops), ('rows', space_id, rows), ('term', Term),
    ('frame', FrameHeader, records), and last ('end', SnapshotEnd). Raises `StorageError`.
    """
    reader = SnapshotReader(disk, name, meta.cluster)
    yield "header", reader.header
    for magic, frame, body in reader.blocks():
        at = reader.position
        try:
            if body is None:
                for space_id, rows in reader.big_rows():
                    yield "rows", space_id, rows
            elif frame is not None:
                yield "frame", frame, decode_body(body, frame.count)
            elif magic == ROWS_MAGIC:
                space_id, rows = unpack(body)
                yield "rows", space_id, rows
            elif magic == CATALOGUE_MAGIC:
                yield "catalogue", unpack(body)
            elif magic == TERM_MAGIC:
                yield "term", reader.lineage[-1]
        except FrameError as error:
            raise StorageError(name, at, error.reason) from error
    yield "end", reader.end
