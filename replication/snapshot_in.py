"""Receiving a snapshot: chunks in order, each with its CRC, resumable over any number of links.

The state in memory and on disk stays what it was until the last byte is verified.
"""

from __future__ import annotations

import zlib

from tandemq_server.replication.decisions import (
    Decision,
    DropSnapshot,
    InstallSnapshot,
    Resubscribe,
    StartSnapshot,
    WriteSnapshot,
)
from tandemq_server.replication.messages import LinkError, SnapshotBegin, SnapshotChunk, SnapshotEnd


class SnapshotReceiver:
    """One snapshot under way, at most. Outlives the connections it comes over.

    `link` is any object that stands for a connection: the last one that began counts.
    """

    __slots__ = ("_begin", "_crc", "_link", "complete", "received")

    def __init__(self) -> None:
        self._begin: SnapshotBegin | None = None
        self._link: object = None
        self._crc = 0
        self.received = 0
        #: Every byte is here; the owner has been asked to install it.
        self.complete = False

    @property
    def joining(self) -> bool:
        """A snapshot is under way or not installed yet: this node must not be promoted."""
        return self._begin is not None

    @property
    def partial(self) -> tuple[str, int] | None:
        """For HELLO: what may be resumed."""
        if self._begin is None or self.complete:
            return None
        return self._begin.name, self.received

    def comes_over(self, link: object) -> bool:
        """Whether this connection is the one that brings it."""
        return self._link is link

    def begin(self, message: SnapshotBegin, own_last_lsn: int, link: object) -> list[Decision]:
        """A snapshot that would take the log backwards is not begun: another link moved the log."""
        if message.end_lsn <= own_last_lsn:
            return [
                Resubscribe(
                    f"snapshot of LSN {message.end_lsn}, the log here ends at {own_last_lsn}"
                )
            ]
        out: list[Decision] = []
        if self.complete:
            return [Resubscribe("the snapshot before this one is being installed")]
        if self._begin is not None and self._begin != message:
            out.append(self._drop("the upstream sends another snapshot"))
        if self._begin is None:
            self._begin = message
            self._crc = self.received = 0
        self._link = link
        out.append(StartSnapshot(message.name, message.size, self.received))
        return out

    def chunk(self, message: SnapshotChunk, link: object) -> list[Decision]:
        """Bytes that are here already are passed over: another link may have brought them.

        Raises `LinkError` for a damaged chunk; nothing is lost.
        """
        begin = self._begin
        if link is not self._link:
            return [Resubscribe("another link brings the snapshot")]
        if begin is None or self.complete:
            raise LinkError("a chunk of no snapshot")
        if message.offset > self.received:
            return [Resubscribe(f"chunk at byte {message.offset}, byte {self.received} is next")]
        if message.offset + len(message.data) > begin.size:
            raise LinkError(f"a chunk ends past the snapshot's {begin.size} bytes")
        if (crc := zlib.crc32(message.data)) != message.crc:
            raise LinkError(f"chunk at byte {message.offset}: CRC is {crc:08x}")
        data, at = message.data[self.received - message.offset :], self.received
        if not data:
            return []
        self._crc = zlib.crc32(data, self._crc)
        self.received += len(data)
        return [WriteSnapshot(begin.name, at, data)]

    def end(self, message: SnapshotEnd, link: object) -> list[Decision]:
        """Raises `LinkError` when bytes are missing. A wrong total CRC starts over from nothing."""
        begin = self._begin
        if link is not self._link:
            return [Resubscribe("another link brings the snapshot")]
        if begin is None or self.complete or message.end_lsn != begin.end_lsn:
            raise LinkError("the end of no snapshot")
        if self.received != begin.size:
            raise LinkError(f"the snapshot ends at byte {self.received} of {begin.size}")
        if self._crc != begin.crc:
            reason = f"CRC of the whole snapshot is {self._crc:08x}, not {begin.crc:08x}"
            return [self._drop(reason), Resubscribe(reason)]
        self.complete = True
        return [InstallSnapshot(begin.name, begin.end_lsn)]

    def not_needed(self) -> list[Decision]:
        """The log itself continues after all."""
        if self.complete:
            return [Resubscribe("a snapshot is being installed")]
        return [self._drop("the log continues without it")] if self.joining else []

    def forget(self) -> None:
        """It was installed, or will not be."""
        self._begin = self._link = None
        self._crc = self.received = 0
        self.complete = False

    def _drop(self, reason: str) -> DropSnapshot:
        assert self._begin is not None
        name = self._begin.name
        self.forget()
        return DropSnapshot(name, reason)
