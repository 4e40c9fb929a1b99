"""Writing a snapshot while serving: bounded blocks, read back, then published by a rename.

Nobody is told of a snapshot that could not be read back as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

import msgpack

from tandemq.log.blocks import FORMAT_VERSION, block_seed, encode_block
from tandemq.log.disk import SUFFIX_IN_PROGRESS, Disk, append_all
from tandemq.log.segment import FOOTER_MAGIC, HEADER_MAGIC
from tandemq.log.snapshot import (
    CATALOGUE_MAGIC,
    ROWS_MAGIC,
    TERM_MAGIC,
    SnapshotFooter,
    SnapshotHeader,
    put_aside,
    snapshot_name,
    verify_snapshot,
)
from tandemq.model.bounds import FRAME_BODY_BYTES_AIM
from tandemq.model.errors import StorageError
from tandemq.model.record import HEADER_SIZE, FrameHeader, Op, decode_header
from tandemq.model.terms import Term, plain_term

_packer = msgpack.Packer(use_bin_type=True, autoreset=True, unicode_errors="surrogateescape")


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
        self._cluster = header.cluster
        value = {
            "version": FORMAT_VERSION,
            "kind": "snapshot",
            "cluster": header.cluster,
            "node": header.node,
            "lineage": [plain_term(term) for term in header.lineage],
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
        self._write(magic, _packer.pack(value))

    def _write(self, magic: bytes, body: bytes) -> None:
        seed = block_seed(self._header, self.size_bytes)
        self._append(encode_block(magic, body, seed))
        self._blocks += 1

    def add_catalogue(self, ops: Sequence[Op]) -> None:
        """Ops that recreate spaces and marks; before the rows of those spaces."""
        self._bounded(CATALOGUE_MAGIC, ops, lambda part: part)

    def add_rows(self, space_id: int, rows: Sequence[Sequence[Any]]) -> None:
        """Some rows of a space, as they are now. As many at a time as should be packed in one go.

        They go into as many blocks as their bytes want, each row into one.
        """
        self._bounded(ROWS_MAGIC, rows, lambda part: [space_id, part])
        self._rows += len(rows)

    def _bounded(
        self, magic: bytes, items: Sequence[Any], value: Callable[[Sequence[Any]], Any]
    ) -> None:
        """Blocks of about `FRAME_BODY_BYTES_AIM` at most; one item that is larger stands alone."""
        body: bytes = _packer.pack(value(items))
        if len(body) <= FRAME_BODY_BYTES_AIM or len(items) <= 1:
            self._write(magic, body)
            return
        del body
        middle = len(items) // 2
        self._bounded(magic, items[:middle], value)
        self._bounded(magic, items[middle:], value)

    def add_term(self, term: Term) -> None:
        """A term that began while the snapshot was being written."""
        self._block(TERM_MAGIC, plain_term(term))
        self._terms.add(term.number)

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
        """End block, sync, reading back, and only then its name. Returns that.

        `end_lsn` is that of the last frame added, or the start LSN. May run in another thread. What
        cannot be read back as it was written is put aside, as a file of suffix `SUFFIX_DAMAGED`,
        and raised as `StorageError`.
        """
        if end_lsn != self._next_lsn - 1:
            raise StorageError(
                self._name, self.size_bytes, f"ends at LSN {self._next_lsn - 1}, not {end_lsn}"
            )
        wrote = SnapshotFooter(end_lsn, self._rows, time_us, self._blocks)
        self._block(FOOTER_MAGIC, list(astuple(wrote)))
        disk, name = self._disk, snapshot_name(end_lsn)
        disk.sync(self._handle)
        self._close()
        try:
            self._read_back(name, wrote)
        except StorageError as error:
            put_aside(disk, self._name, name)
            raise StorageError(
                name, error.position, f"read back, it is not what was written: {error.reason}"
            ) from error
        disk.rename(self._name, name)
        disk.sync_dir()
        return name

    def _read_back(self, name: str, wrote: SnapshotFooter) -> None:
        self._disk.settle(self._name)
        found = verify_snapshot(self._disk, self._name, self._cluster, name)
        if found != wrote:
            raise StorageError(self._name, 0, f"it ends with {found} instead of {wrote}")

    def abort(self) -> None:
        """Give up and remove the unfinished file. May be called after any error, and twice."""
        if self._handle >= 0:
            self._close()
            # Whoever loads the directory anew, after a cut, has removed it already.
            if self._name in self._disk.list():
                self._disk.remove(self._name)

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        self._disk.close(handle)
