"""Rescued records: the note that says what was cut, from which log and why.

The cut frames are kept verbatim. What in them is worth putting again is told by `replay.py`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from tandemq.model.record import (
    HEADER_SIZE,
    FrameError,
    FrameHeader,
    Record,
    decode_body,
    decode_header,
    frame_body,
)
from tandemq.model.terms import plain_term
from tandemq_server.replication.lineage import ID_BYTES, Lineage, LineageError

RESCUE_MAGIC = b"TQs1"
RESCUE_VERSION = 1
_HEAD = struct.Struct(">4sII")


class RescueError(Exception):
    """Bytes that are not a rescue file. `position`: the byte at which they stop being one."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.position = position
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RescueNote:
    """What was cut, from which log, and why. Ids are 16 bytes, `time_us` the log's clock.

    lineage: of the log that lost its end, as it was before the cut, so that its last terms are
    those of the records. tubes: space id -> (name, driver) at the fork: the records name spaces
    by number, and on the other lineage the same number may be another tube. records_from: the
    first LSN whose record is saved, 0 for `first_lsn`; of those below only what they led to is
    known, by the rescued `snapshot`. options: space id -> how the tube was declared, of tubes
    whose rows cannot be read without it. numbers: a tube's own id -> its space id.
    """

    cluster: bytes
    node: bytes
    lineage: Lineage
    first_lsn: int
    last_lsn: int
    acked_mark: int
    time_us: int
    reason: str
    tubes: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    records_from: int = 0
    snapshot: str = ""
    options: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    numbers: Mapping[int, int] = field(default_factory=dict)

    @property
    def saved_from(self) -> int:
        """The first LSN whose record is saved."""
        return self.records_from or self.first_lsn

    @property
    def summary(self) -> str:
        """One line for a listing."""
        acked = max(0, min(self.acked_mark, self.last_lsn) - self.first_lsn + 1)
        term = self.lineage.last
        return (
            f"LSN {self.first_lsn}..{self.last_lsn} of term {term.number if term else 0}: "
            f"{self.last_lsn - self.first_lsn + 1} records, {acked} acknowledged; {self.reason}"
        )


def encode_rescue(note: RescueNote, frames: Iterable[bytes]) -> bytes:
    """The note, then the cut frames as they were; no frames for a note that lies beside them."""
    body: bytes = msgpack.packb(
        {
            "version": RESCUE_VERSION,
            "cluster": note.cluster,
            "node": note.node,
            "lineage": [plain_term(term) for term in note.lineage],
            "first_lsn": note.first_lsn,
            "last_lsn": note.last_lsn,
            "acked_mark": note.acked_mark,
            "time_us": note.time_us,
            "reason": note.reason,
            "tubes": [[space, *names] for space, names in note.tubes.items()],
            # What older versions do not know they pass over.
            **({"records_from": note.records_from} if note.records_from else {}),
            **({"snapshot": note.snapshot} if note.snapshot else {}),
            **({"options": [list(item) for item in note.options.items()]} if note.options else {}),
            **({"numbers": [list(item) for item in note.numbers.items()]} if note.numbers else {}),
        },
        unicode_errors="surrogateescape",
    )
    head = _HEAD.pack(RESCUE_MAGIC, len(body), zlib.crc32(body))
    return b"".join((head, body, *frames))


def decode_note(data: bytes) -> tuple[RescueNote, int]:
    """The note and where the frames begin. Raises `RescueError`."""
    if len(data) < _HEAD.size:
        raise RescueError(len(data), "the head is cut short")
    magic, length, crc = _HEAD.unpack_from(data)
    if magic != RESCUE_MAGIC:
        raise RescueError(0, f"not a rescue file: magic {magic!r}")
    end = _HEAD.size + length
    body = data[_HEAD.size : end]
    if len(body) < length:
        raise RescueError(len(data), "the note is cut short")
    if zlib.crc32(body) != crc:
        raise RescueError(_HEAD.size, f"CRC of the note is {zlib.crc32(body):08x}")
    try:
        value = msgpack.unpackb(body, raw=False, unicode_errors="surrogateescape")
        if value["version"] > RESCUE_VERSION:
            raise RescueError(
                _HEAD.size, f"version {value['version']} is newer than {RESCUE_VERSION}, known here"
            )
        note = RescueNote(
            value["cluster"],
            value["node"],
            Lineage(value["lineage"]),
            value["first_lsn"],
            value["last_lsn"],
            value["acked_mark"],
            value["time_us"],
            value["reason"],
            {space: (name, driver) for space, name, driver in value["tubes"]},
            value.get("records_from", 0),
            value.get("snapshot", ""),
            {space: dict(options) for space, options in value.get("options", ())},
            dict(value.get("numbers", ())),
        )
        if len(note.cluster) != ID_BYTES or len(note.node) != ID_BYTES:
            raise ValueError(f"an id is not {ID_BYTES} bytes")
        if not 1 <= note.first_lsn <= note.saved_from <= note.last_lsn + 1:
            raise ValueError(f"LSN {note.first_lsn}, {note.saved_from}, {note.last_lsn}")
    except (ValueError, TypeError, KeyError, LineageError, msgpack.UnpackException) as error:
        raise RescueError(_HEAD.size, f"the note is malformed: {error}") from error
    return note, end


def decode_rescue(
    data: bytes,
) -> tuple[RescueNote, Iterator[tuple[FrameHeader, bytes, list[Record]]]]:
    """The note and (header, whole frame, records) of each frame. Raises `RescueError`.

    The frames are verified as they are asked for: every CRC, no gap, all that the note announces.
    """
    note, at = decode_note(data)
    return note, _frames(note, data, at)


def _frames(
    note: RescueNote, data: bytes, at: int
) -> Iterator[tuple[FrameHeader, bytes, list[Record]]]:
    lsn = note.first_lsn
    while at < len(data):
        try:
            header = decode_header(data, at)
            term = note.lineage.term_at(header.first_lsn)
            if header.first_lsn != lsn or term is None or term.number != header.term:
                raise FrameError(f"LSN {header.first_lsn} of term {header.term} is not next")
            body = frame_body(data, at, header, term.id)
            records = decode_body(body, header.count)
        except FrameError as error:
            raise RescueError(at, error.reason) from error
        end = at + HEADER_SIZE + header.length
        yield header, data[at:end], records
        at, lsn = end, header.last_lsn + 1
    if lsn != note.last_lsn + 1:
        raise RescueError(at, f"records {lsn}..{note.last_lsn} are missing")
