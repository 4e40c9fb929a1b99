"""The upstream's end of a link: which bytes one downstream gets next, and how far it is.

Live frames go out only to a downstream that stands exactly at the end of the log and keeps up;
anybody else is fed from segments, a bounded portion at a time. Nothing is buffered here: bytes in
flight are remembered by their sizes only.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable
from enum import StrEnum

from tandemq.model.record import (
    HEADER_SIZE,
    FrameError,
    FrameHeader,
    Span,
    decode_body,
    decode_header,
    encode_frame,
    frame_body,
)
from tandemq.model.units import KIB, MIB
from tandemq_server.replication.messages import (
    AGAIN,
    DIVERGED,
    SILENT,
    Ack,
    Bye,
    Frame,
    Heartbeat,
    LinkError,
    Message,
    SnapshotBegin,
    SnapshotChunk,
    SnapshotEnd,
)
from tandemq_server.replication.pulse import LagClock, Pulse

WINDOW_BYTES = 8 * MIB
#: What one portion of the log has at most: a few milliseconds of work for a downstream.
READ_BYTES = 256 * KIB
CHUNK_BYTES = 256 * KIB
#: One or more frames of a term that follow each other: their LSNs, bytes, and the term's id.
LogFrame = tuple[Span | FrameHeader, bytes, bytes]


class Mode(StrEnum):
    """How a downstream is fed. LIVE: at the end of the log. GONE: the link is over."""

    LIVE = "live"
    CATCH_UP = "catch_up"
    SNAPSHOT = "snapshot"
    INSTALLING = "installing"
    GONE = "gone"


class Relay:
    """One downstream after its handshake. Methods return messages to send, in order.

    next_lsn: the first record not sent yet; tail_lsn: the last record of the log; acked_lsn /
    applied_lsn: what the downstream confirmed (durable / visible there). reason: why GONE.
    """

    def __init__(
        self,
        from_lsn: int,
        tail_lsn: int,
        pulse: Pulse,
        *,
        window_bytes: int = WINDOW_BYTES,
        read_bytes: int = READ_BYTES,
        backlog_bytes: int = 0,
    ) -> None:
        """`from_lsn`: what CONTINUE promised. `backlog_bytes`: the log from there on, if known."""
        assert 1 <= from_lsn <= tail_lsn + 1, f"LSN {from_lsn} is past the end, {tail_lsn}"
        assert 0 < read_bytes <= window_bytes
        self.next_lsn = from_lsn
        self.tail_lsn = tail_lsn
        self.acked_lsn = self.applied_lsn = from_lsn - 1
        self.acked_term = b""
        self.pulse = pulse
        self.window_bytes = window_bytes
        self.read_bytes_max = read_bytes
        self.in_flight_bytes = 0
        #: What comes next is larger than the room left: reading it again would not help.
        self._lacks_room = False
        self.sent_frames = self.sent_bytes = 0
        self.reason = ""
        self.mode = Mode.LIVE if from_lsn == tail_lsn + 1 else Mode.CATCH_UP
        #: (last LSN, bytes) of every frame sent and not confirmed.
        self._flight: deque[tuple[int, int]] = deque()
        self._owed_bytes = backlog_bytes
        self._lag = LagClock()
        if self.mode is Mode.CATCH_UP:
            self._lag.grew(tail_lsn, pulse.now_us)
        self._snapshot: SnapshotBegin | None = None
        self._snapshot_at = self._snapshot_acked = 0

    # -- frames ----------------------------------------------------------------------------------

    def live(
        self, header: Span | FrameHeader, data: bytes, term_id: bytes, now_us: int
    ) -> list[Message]:
        """Frames were appended to this node's log. To be called for all of them, in order.

        Sent at once when the downstream is right behind it and the window has room; else it will
        be read from the log when its turn comes.
        """
        assert header.first_lsn == self.tail_lsn + 1, (
            f"frame of LSN {header.first_lsn} does not follow {self.tail_lsn}"
        )
        self.tail_lsn = header.last_lsn
        self._owed_bytes += len(data)
        self._lag.grew(header.last_lsn, now_us)
        if self.mode is not Mode.LIVE:
            return []
        if self.in_flight_bytes and self.in_flight_bytes + len(data) > self.window_bytes:
            self.mode = Mode.CATCH_UP
            return []
        return [self._send(header.last_lsn, data, term_id)]

    def wants_read(self) -> int | None:
        """The LSN from which the owner should read the log and `feed`, None for nothing now.

        Read up to `read_bytes` bytes but at least one frame. When the LSN is no longer in the
        log, call `gone`.
        """
        if self.mode is not Mode.CATCH_UP or self.next_lsn > self.tail_lsn:
            return None
        return self.next_lsn if self.read_bytes > 0 else None

    @property
    def read_bytes(self) -> int:
        """How many bytes the next portion may have; 0 while the window is full."""
        if not self.in_flight_bytes:
            return self.read_bytes_max
        if self._lacks_room:
            return 0
        room = self.window_bytes - self.in_flight_bytes
        # Small portions cost a look into the log each: wait until it is worth one.
        return min(self.read_bytes_max, room) if room * 4 >= self.read_bytes_max else 0

    def feed(self, frames: Iterable[LogFrame]) -> list[Message]:
        """Frames read from the log, ascending. What was sent already is passed over.

        What stands behind a gap, or beyond the window, are left for the next `wants_read`.
        """
        out: list[Message] = []
        for header, data, term_id in frames:
            if self.mode is not Mode.CATCH_UP or header.first_lsn > self.next_lsn:
                break
            if header.last_lsn < self.next_lsn:
                continue
            if self.in_flight_bytes and self.in_flight_bytes + len(data) > self.window_bytes:
                self._lacks_room = True
                break
            part = data
            if header.first_lsn < self.next_lsn:
                try:
                    part = _from_lsn(data, term_id, self.next_lsn)
                except FrameError as error:
                    return [*out, *self.end(DIVERGED, f"LSN {self.next_lsn}: {error.reason}")]
            # Read before the owner told of it: the end of the log is at least here.
            self.tail_lsn = max(self.tail_lsn, header.last_lsn)
            out.append(self._send(header.last_lsn, part, term_id))
        if self.mode is Mode.CATCH_UP and self.next_lsn > self.tail_lsn:
            self.mode = Mode.LIVE
        return out

    def gone(self, first_lsn: int) -> list[Message]:
        """The log now starts at `first_lsn`, past what is wanted: the next handshake bootstraps."""
        return self.end(AGAIN, f"LSN {self.next_lsn} left the log, which starts at {first_lsn}")

    def _send(self, last_lsn: int, data: bytes, term_id: bytes) -> Message:
        self.next_lsn = last_lsn + 1
        self._flight.append((last_lsn, len(data)))
        self.in_flight_bytes += len(data)
        self.sent_frames += 1
        self.sent_bytes += len(data)
        return Frame(term_id, data)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self, begin: SnapshotBegin, partial: tuple[str, int] | None) -> list[Message]:
        """Send a snapshot first; log frames follow from `end_lsn + 1` once it is installed.

        `partial`: HELLO's, to go on where an earlier connection broke off.
        """
        assert begin.end_lsn <= self.tail_lsn
        self.mode = Mode.SNAPSHOT
        self._snapshot = begin
        resumed = partial is not None and partial[0] == begin.name and partial[1] <= begin.size
        self._snapshot_at = partial[1] if partial is not None and resumed else 0
        self._snapshot_acked = self._snapshot_at
        self.next_lsn = begin.end_lsn + 1
        self.acked_lsn = self.applied_lsn = 0
        return [begin]

    @property
    def snapshot_name(self) -> str:
        """Of the snapshot under way, empty once it is installed."""
        return self._snapshot.name if self._snapshot is not None else ""

    def wants_snapshot(self) -> tuple[int, int] | None:
        """(offset, bytes) of the snapshot to read and `feed_snapshot`; None for nothing now."""
        if self.mode is not Mode.SNAPSHOT or self._snapshot is None:
            return None
        room = self.window_bytes - (self._snapshot_at - self._snapshot_acked)
        size = min(CHUNK_BYTES, self._snapshot.size - self._snapshot_at, room)
        return (self._snapshot_at, size) if size > 0 or not self._left() else None

    def feed_snapshot(self, data: bytes) -> list[Message]:
        """The bytes `wants_snapshot` asked for (fewer is fine, none at the end of the file)."""
        assert self.mode is Mode.SNAPSHOT
        assert self._snapshot is not None
        out: list[Message] = []
        if data:
            out.append(SnapshotChunk(self._snapshot_at, data, zlib.crc32(data)))
            self._snapshot_at += len(data)
        if not self._left():
            out.append(SnapshotEnd(self._snapshot.end_lsn))
            self.mode = Mode.INSTALLING
        return out

    def _left(self) -> int:
        return self._snapshot.size - self._snapshot_at if self._snapshot is not None else 0

    # -- what the downstream says ----------------------------------------------------------------

    def ack(self, ack: Ack, now_us: int) -> None:
        """The downstream confirmed. Raises `LinkError` when it confirms what was never sent."""
        self.pulse.heard(now_us)
        if self.mode is Mode.GONE:
            return
        self._snapshot_acked = max(self._snapshot_acked, min(ack.snapshot_bytes, self._snapshot_at))
        begin = self._snapshot
        if begin is not None and self.mode in (Mode.SNAPSHOT, Mode.INSTALLING):
            if self.mode is Mode.SNAPSHOT or ack.durable_lsn < begin.end_lsn:
                return
            self.mode = Mode.CATCH_UP if self.next_lsn <= self.tail_lsn else Mode.LIVE
            self._snapshot = None
        if ack.durable_lsn >= self.next_lsn:
            raise LinkError(
                f"LSN {ack.durable_lsn} is confirmed, only {self.next_lsn - 1} was sent", DIVERGED
            )
        if ack.durable_lsn > self.acked_lsn:
            self.acked_lsn = ack.durable_lsn
        self.acked_term = ack.term_id
        self.applied_lsn = max(self.applied_lsn, ack.applied_lsn)
        flight = self._flight
        while flight and flight[0][0] <= self.acked_lsn:
            size = flight.popleft()[1]
            self._lacks_room = False
            self.in_flight_bytes -= size
            self._owed_bytes = max(self.in_flight_bytes, self._owed_bytes - size)

    def heard(self, now_us: int) -> None:
        """Some other message arrived."""
        self.pulse.heard(now_us)

    def tick(self, now_us: int, beat: Heartbeat) -> list[Message]:
        """Time passed; `beat` is sent when it is due. A silent downstream is given up."""
        if self.mode is Mode.GONE:
            return []
        due = self.pulse.tick(now_us)
        if self.pulse.dead(now_us):
            return self.end(SILENT, f"nothing heard for {self.pulse.age_us(now_us) // 1000} ms")
        return [beat] if due else []

    def end(self, code: int, reason: str) -> list[Message]:
        """Close the link: the message to send last, if it can still be sent."""
        if self.mode is Mode.GONE:
            return []
        self.mode = Mode.GONE
        self.reason = reason
        self._flight.clear()
        self.in_flight_bytes = 0
        return [Bye(code, reason)]

    # -- lag -------------------------------------------------------------------------------------

    @property
    def lag_records(self) -> int:
        """Records of this log the downstream has not made durable."""
        return max(0, self.tail_lsn - self.acked_lsn)

    @property
    def lag_bytes(self) -> int:
        """Bytes of these records; before the first confirmation as good as `backlog_bytes` was."""
        return self._owed_bytes if self.lag_records else 0

    def lag_us(self, now_us: int) -> int:
        """Age of the oldest record the downstream has not made durable."""
        return self._lag.lag_us(self.acked_lsn, now_us)


def _from_lsn(data: bytes, term_id: bytes, lsn: int) -> bytes:
    """The part of some frames from `lsn` on. Raises `FrameError` when it cannot be cut there."""
    at = 0
    while (header := decode_header(data, at)).last_lsn < lsn:
        at += HEADER_SIZE + header.length
    if header.first_lsn == lsn:
        return data[at:]
    records = decode_body(frame_body(data, at, header, term_id), header.count)
    part = encode_frame(
        records[lsn - header.first_lsn :], header.term, term_id, lsn, header.commit_lsn
    )
    return part + data[at + HEADER_SIZE + header.length :]
