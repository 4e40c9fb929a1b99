"""Snapshots: written while serving, published by a rename, read back block by block.

A snapshot interleaves rows with the log frames committed meanwhile; read in order, rows as
upserts and frames leniently, it gives exactly the state at its end LSN. What rows mean is
decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from model.errors import StorageError
from model.record import (
    FRAME_MAGIC,
    HEADER_SIZE,
    FrameError,
    FrameHeader,
    Op,
    decode_body,
    decode_header,
    frame_body,
)
from storage.blocks import (
    BLOCK_SIZE,
    FORMAT_VERSION,
    Window,
    block_length,
    block_seed,
    check_owner,
    decode_block,
    encode_block,
    unpack,
)
from storage.disk import RESCUE_PREFIX, SUFFIX_IN_PROGRESS, Disk, append_all, remove_durably
from storage.meta import Meta
from storage.segment import FOOTER_MAGIC, HEADER_MAGIC, Term, TermFields, name_lsn, term_from

CATALOGUE_MAGIC = b"TQc1"
ROWS_MAGIC = b"TQr1"
TERM_MAGIC = b"TQt1"
SUFFIX = ".snap"
SNAPSHOTS_KEPT = 2
_packer = msgpack.Packer(use_bin_type=True, autoreset=True, unicode_errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """Who wrote it, the terms up to its start, and the LSN after which its frames begin."""

    cluster: bytes
    node: bytes
    lineage: tuple[Term, ...]
    start_lsn: int


def snapshot_name(end_lsn: int) -> str:
    return f"{end_lsn:020d}{SUFFIX}"


def snapshot_names(disk: Disk) -> list[str]:
    """Published snapshots of a directory, oldest first."""
    return [name for name in disk.list() if name_lsn(name, SUFFIX) is not None]


def prune(disk: Disk, keep: int = SNAPSHOTS_KEPT) -> list[str]:
    """Remove all but the newest `keep` snapshots, oldest first. Returns their names."""
    gone = snapshot_names(disk)[:-keep]
    for name in gone:
        remove_durably(disk, name)
    return gone


class SnapshotWriter:
    """One snapshot in the making, `<start lsn>.snap.inprogress` until it is finished.

    Calls may be spread over many event-loop turns: rows as they are visited, and every frame
    committed from the start LSN on, each as soon as it is applied. `add_term` comes before the
    first frame of a new term. Any error leaves a file that recovery removes; call `abort`.
    """

    def __init__(self, disk: Disk, header: SnapshotHeader) -> None:
        """Raises `StorageError`. Begin with `add_catalogue`."""
        self._disk = disk
        self._name = snapshot_name(header.start_lsn) + SUFFIX_IN_PROGRESS
        self._next_lsn = header.start_lsn + 1
        self._terms = {term.number for term in header.lineage}
        self._rows = self._blocks = 0
        value = {
            "version": FORMAT_VERSION,
            "kind": "snapshot",
            "cluster": header.cluster,
            "node": header.node,
            "lineage": [list(term) for term in header.lineage],
            "start_lsn": header.start_lsn,
        }
        self._header = encode_block(HEADER_MAGIC, _packer.pack(value))
        if self._name in disk.list():
            disk.remove(self._name)
        self._handle = disk.create(self._name)
        self.size_bytes = 0
        self._append(self._header)

    def _append(self, data: bytes) -> None:
        append_all(self._disk, self._handle, data)
        self.size_bytes += len(data)

    def _block(self, magic: bytes, value: Any) -> None:
        seed = block_seed(self._header, self.size_bytes)
        self._append(encode_block(magic, _packer.pack(value), seed))
        self._blocks += 1

    def add_catalogue(self, ops: Sequence[Op]) -> None:
        """Ops that recreate spaces and marks; before the rows of those spaces."""
        self._block(CATALOGUE_MAGIC, ops)

    def add_rows(self, space_id: int, rows: Sequence[Sequence[Any]]) -> None:
        """Some rows of a space, as they are now. A few hundred to a few thousand at a time."""
        self._block(ROWS_MAGIC, [space_id, rows])
        self._rows += len(rows)

    def add_term(self, term: TermFields) -> None:
        """A term that began while the snapshot was being written."""
        self._block(TERM_MAGIC, list(term))
        self._terms.add(term[0])

    def add_frames(self, frames: bytes) -> None:
        """Log frames committed meanwhile; must continue those before, or the start LSN."""
        at = 0
        while at < len(frames):
            header = decode_header(frames, at)
            end = at + HEADER_SIZE + header.length
            self._add_one(header, frames[at:end])
            at = end

    def _add_one(self, header: FrameHeader, frame: bytes) -> None:
        if header.first_lsn != self._next_lsn or header.term not in self._terms:
            raise StorageError(
                self._name,
                self.size_bytes,
                f"frame of term {header.term} at LSN {header.first_lsn}, due is {self._next_lsn} "
                f"of terms {sorted(self._terms)}",
            )
        self._append(frame)
        self._next_lsn = header.last_lsn + 1
        self._blocks += 1

    def finish(self, end_lsn: int, time_us: int) -> str:
        """Publish: end block, sync, rename, sync of the directory. Returns the file's name.

        `end_lsn` is that of the last frame added, or the start LSN. May run in another thread.
        """
        if end_lsn != self._next_lsn - 1:
            raise StorageError(
                self._name, self.size_bytes, f"ends at LSN {self._next_lsn - 1}, not {end_lsn}"
            )
        self._block(FOOTER_MAGIC, [end_lsn, self._rows, time_us, self._blocks])
        disk, name = self._disk, snapshot_name(end_lsn)
        disk.sync(self._handle)
        self._close()
        disk.rename(self._name, name)
        disk.sync_dir()
        return name

    def abort(self) -> None:
        """Give up and remove the unfinished file. May be called after any error, and twice."""
        if self._handle >= 0:
            self._close()
            self._disk.remove(self._name)

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        self._disk.close(handle)


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """The last block: where the state stands, and what must have been read until here."""

    end_lsn: int
    rows: int
    time_us: int
    blocks: int


class SnapshotReader:
    """Blocks of one snapshot in order, each verified. Memory: a window plus one block.

    Raises `StorageError` naming file, position and reason. `end` is set once all was read.
    """

    def __init__(self, disk: Disk, name: str, cluster: bytes) -> None:
        """Reads the header; any node of `cluster` may have written it (bootstrap copies)."""
        self.name = name
        self._window = Window(disk, name)
        self.end: SnapshotEnd | None = None
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

    def blocks(self) -> Iterator[tuple[bytes, FrameHeader | None, memoryview]]:
        """(magic, frame header if it is one, verified body) of each block, the end included."""
        count = 0
        try:
            while self.end is None:
                magic, frame, body, size = self._next()
                if magic == FOOTER_MAGIC:
                    self._check_end(body, count, self.position + size)
                elif magic == TERM_MAGIC:
                    self.lineage.append(term_from(unpack(body)))
                elif frame is not None:
                    self.last_lsn = frame.last_lsn
                self.position += size
                count += 1
                yield magic, frame, body
        except FrameError as error:
            raise StorageError(self.name, self.position, error.reason) from error

    def _next(self) -> tuple[bytes, FrameHeader | None, memoryview, int]:
        """(magic, frame header, verified body, size in bytes) of the block at the position."""
        window, position = self._window, self.position
        buffer, at = window.at(position, HEADER_SIZE)
        magic = buffer[at : at + 4]
        if magic == FRAME_MAGIC:
            header = decode_header(buffer, at)
            total = HEADER_SIZE + header.length
            buffer, at = window.at(position, total)
            term = next((t for t in reversed(self.lineage) if t.number == header.term), None)
            if term is None:
                raise FrameError(f"frame of term {header.term}, which is not in the lineage")
            body = frame_body(buffer, at, header, term.id)
            if header.first_lsn != self.last_lsn + 1 or not header.count:
                raise FrameError(f"LSN {header.first_lsn} follows {self.last_lsn}")
            return magic, header, body, total
        if magic not in (CATALOGUE_MAGIC, ROWS_MAGIC, TERM_MAGIC, FOOTER_MAGIC):
            if len(magic) < 4:
                raise FrameError("snapshot ends without its end block", torn=True)
            raise FrameError(f"not a block of a snapshot: magic {magic!r}")
        total = BLOCK_SIZE + block_length(buffer, at)
        buffer, at = window.at(position, total)
        body = decode_block(buffer, at, magic, block_seed(self._header_bytes, position))
        return magic, None, body, total

    def _check_end(self, body: memoryview, blocks: int, end: int) -> None:
        value = unpack(body)
        if not isinstance(value, list) or len(value) != 4:
            raise FrameError("end block is not a list of four numbers")
        said = SnapshotEnd(*value)
        if (said.end_lsn, said.blocks) != (self.last_lsn, blocks):
            raise FrameError(
                f"end block says {said}, read were LSN {self.last_lsn}, {blocks} blocks"
            )
        # One that a rescue moved keeps the LSN in front of its name.
        if not self.name.removeprefix(RESCUE_PREFIX).startswith(f"{said.end_lsn:020d}"):
            raise FrameError(f"end block says LSN {said.end_lsn}")
        if end != self.size:
            raise FrameError(f"{self.size - end} bytes follow the end block")
        self.end = said


def verify_snapshot(disk: Disk, name: str, cluster: bytes) -> SnapshotEnd:
    """Check every CRC without decoding rows. Raises `StorageError`."""
    reader = SnapshotReader(disk, name, cluster)
    for _ in reader.blocks():
        pass
    assert reader.end is not None
    return reader.end


def read_snapshot(disk: Disk, name: str, meta: Meta) -> Iterator[tuple[Any, ...]]:
    """The content in order, each part verified before it is handed out:

    ('header', SnapshotHeader), ('catalogue', ops), ('rows', space_id, rows), ('term', Term),
    ('frame', FrameHeader, records), and last ('end', SnapshotEnd). Raises `StorageError`.
    """
    reader = SnapshotReader(disk, name, meta.cluster)
    yield "header", reader.header
    for magic, frame, body in reader.blocks():
        at = reader.position
        try:
            if frame is not None:
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
