"""The log record: one transaction, everything a call changed; and the frame that groups records.

A record is `(time_us, kind, session, ops)`; an op is a flat tuple starting with its code. Ops are
absolute, so that applying one twice gives the state of applying it once. Layouts are documented in
docs/log-format.md and frozen by the golden files in the tests. No files and no state live here.

Shapes of the ops (fields counted from 0):
    (INSERT, space_id, [field, ...])                    whole row, replaces one of the same key
    (SET, space_id, key, field, value, field, value...) absolute values
    (DELETE, space_id, key)
    (CREATE, space_id, name, driver, opts, flags)       flags: FLAG_TEMPORARY
    (DROP, space_id)
    (TRUNCATE, space_id)
    (TERM, number, id, parent, start_lsn, node, solo)
    (MARK, space_id, next_id)                           ids below next_id are spent (snapshots);
                                                        space_id 0: the same of space ids
    (INSERT_MANY, space_id, [row, ...])                 INSERT for each row
    (SET_MANY, space_id, [key, ...], field, value, ...) the same SET for each key
    (DELETE_MANY, space_id, [key, ...])                 DELETE for each key
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack

from tandemq.model.bounds import (
    FRAME_BODY_BYTES_AIM,
    FRAME_BODY_BYTES_MAX,
    FRAME_EXTRA_BYTES,
    RECORD_BYTES_MAX,
    RECORD_HEAD_BYTES,
    TooLarge,
    record_too_large,
)

INSERT, SET, DELETE, CREATE, DROP, TRUNCATE, TERM, MARK = 1, 2, 3, 4, 5, 6, 7, 8
INSERT_MANY, SET_MANY, DELETE_MANY = 9, 10, 11
OP_NAMES = {
    INSERT: "insert",
    SET: "set",
    DELETE: "delete",
    CREATE: "create",
    DROP: "drop",
    TRUNCATE: "truncate",
    TERM: "term",
    MARK: "mark",
    INSERT_MANY: "insert_many",
    SET_MANY: "set_many",
    DELETE_MANY: "delete_many",
}
FLAG_TEMPORARY = 1

KIND_NAMES = {
    1: "put",
    2: "take",
    3: "ack",
    4: "release",
    5: "bury",
    6: "kick",
    7: "delete",
    8: "touch",
    9: "ttr",
    10: "ttl",
    11: "delay",
    12: "truncate",
    13: "release_all",
    14: "create_tube",
    15: "drop_tube",
    16: "session",
    17: "config",
    18: "term",
    19: "grant",
    20: "noop",
    21: "put_many",
    22: "take_many",
    23: "ack_many",
    24: "release_many",
    25: "startup",
    26: "other",
    27: "finish",
}
(
    KIND_PUT,
    KIND_TAKE,
    KIND_ACK,
    KIND_RELEASE,
    KIND_BURY,
    KIND_KICK,
    KIND_DELETE,
    KIND_TOUCH,
    KIND_TTR,
    KIND_TTL,
    KIND_DELAY,
    KIND_TRUNCATE,
    KIND_RELEASE_ALL,
    KIND_CREATE_TUBE,
    KIND_DROP_TUBE,
    KIND_SESSION,
    KIND_CONFIG,
    KIND_TERM,
    KIND_GRANT,
    KIND_NOOP,
    KIND_PUT_MANY,
    KIND_TAKE_MANY,
    KIND_ACK_MANY,
    KIND_RELEASE_MANY,
    KIND_STARTUP,
    KIND_OTHER,
    KIND_FINISH,
) = range(1, 28)

Op = Sequence[Any]
Record = tuple[int, int, bytes | None, list[Op]]

FRAME_MAGIC = b"TQf1"
_HEADER = struct.Struct(">4sIIIQIQ")
HEADER_SIZE = _HEADER.size
#: Where in a header the CRC and the first LSN stand.
_CRC_AT, _LSN_AT = 8, 16
_NO_CRC = bytes(4)


def _new_packer() -> msgpack.Packer:
    """A packer keeps the largest buffer it ever needed: one that packs much should not last."""
    return msgpack.Packer(use_bin_type=True, autoreset=True, unicode_errors="surrogateescape")


_pack_body = _new_packer().pack
_pack_array_header = _new_packer().pack_array_header
_crc32 = zlib.crc32


class FrameHeader(NamedTuple):
    """Enough to plan a read without decoding: sizes in bytes, LSNs `first_lsn .. last_lsn`."""

    length: int
    crc: int
    term: int
    first_lsn: int
    count: int  # type: ignore[assignment]
    commit_lsn: int

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.count - 1


class Span(NamedTuple):
    """The LSNs of one or more frames that follow each other."""

    first_lsn: int
    last_lsn: int


class FrameError(Exception):
    """Bytes that are not a whole valid frame. `torn` says they may be the start of one."""

    def __init__(self, reason: str, torn: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.torn = torn


def _seed(term_id: bytes, first_lsn: int) -> int:
    """Stale bytes of another term or position can never validate."""
    return _crc32(term_id + first_lsn.to_bytes(8, "big"))


def encode_frame(
    records: Sequence[Record], term: int, term_id: bytes, first_lsn: int, commit_lsn: int
) -> bytes:
    """One frame: the same bytes go to the disk and to every downstream.

    Raises `TooLarge` for what older readers would refuse; `encode_frames` cuts in time.
    """
    body: bytes = _pack_body(records)
    return _framed(body, len(records), term, term_id, first_lsn, commit_lsn)


def _framed(
    body: bytes, count: int, term: int, term_id: bytes, first_lsn: int, commit_lsn: int
) -> bytes:
    if len(body) > FRAME_BODY_BYTES_MAX:
        raise TooLarge(
            f"a frame of {len(body)} bytes with {count} records from LSN {first_lsn} was to be "
            f"written, {FRAME_BODY_BYTES_MAX} are the most"
        )
    bare = _HEADER.pack(FRAME_MAGIC, len(body), 0, term, first_lsn, count, commit_lsn)
    crc = _crc32(body, _crc32(bare, _seed(term_id, first_lsn)))
    return _HEADER.pack(FRAME_MAGIC, len(body), crc, term, first_lsn, count, commit_lsn) + body


def record_bytes(ops: Sequence[Op]) -> int:
    """How many bytes a record of these ops has in a frame, at most."""
    packed = _new_packer().pack
    return RECORD_HEAD_BYTES + sum([len(packed(op)) for op in ops])


def check_record(ops: Sequence[Op]) -> None:
    """Raises `QueueError` when what a call changed is too large for a record."""
    size = record_bytes(ops)
    if size > RECORD_BYTES_MAX:
        raise record_too_large(size)


def encode_frames(
    records: Sequence[Record], term: int, term_id: bytes, first_lsn: int, commit_lsn: int
) -> list[tuple[bytes, int, int]]:
    """(frame, its first and last LSN) of all that a turn changed: nearly always one frame.

    Beyond `FRAME_BODY_BYTES_AIM` there are several; a record larger than that has one of its own.
    Raises `TooLarge`.
    """
    body: bytes = _pack_body(records)
    count = len(records)
    if len(body) <= FRAME_BODY_BYTES_AIM or count == 1:
        frame = _framed(body, count, term, term_id, first_lsn, commit_lsn)
        return [(frame, first_lsn, first_lsn + count - 1)]
    del body
    packed: Callable[[Any], bytes] = _new_packer().pack
    frames: list[tuple[bytes, int, int]] = []

    def close(upto: int) -> None:
        first, last = first_lsn + upto - len(part), first_lsn + upto - 1
        body = b"".join((_pack_array_header(len(part)), *part))
        frames.append((_framed(body, len(part), term, term_id, first, commit_lsn), first, last))

    part: list[bytes] = []
    size = 0
    for number, record in enumerate(records):
        one = packed(record)
        size += len(one)
        if part and size > FRAME_BODY_BYTES_AIM - FRAME_EXTRA_BYTES:
            close(number)
            part, size = [], len(one)
        part.append(one)
    close(count)
    return frames


def decode_header(buffer: bytes | memoryview, position: int = 0) -> FrameHeader:
    """Read a frame header at `position`. Raises `FrameError` (torn when bytes are missing).

    Its length is not bounded here: older versions wrote frames above `FRAME_BODY_BYTES_MAX`. Who
    reads a file compares it with what the file holds, before anything is kept.
    """
    if len(buffer) - position < HEADER_SIZE:
        raise FrameError("header is cut short", torn=True)
    magic, length, crc, term, first_lsn, count, commit = _HEADER.unpack_from(buffer, position)
    if magic != FRAME_MAGIC:
        raise FrameError(f"not a frame: magic {bytes(magic)!r}")
    return FrameHeader(length, crc, term, first_lsn, count, commit)


def frame_body(
    buffer: bytes | memoryview, position: int, header: FrameHeader, term_id: bytes
) -> memoryview:
    """The body behind `header`, its CRC verified. Raises `FrameError`."""
    start = position + HEADER_SIZE
    end = start + header.length
    view = memoryview(buffer)
    if len(view) < end:
        raise FrameError("body is cut short", torn=True)
    # The seed is of the term's id and the first LSN as the header has it; the CRC's own place
    # counts as zeros.
    crc = _crc32(view[position + _LSN_AT : position + _LSN_AT + 8], _crc32(term_id))
    crc = _crc32(_NO_CRC, _crc32(view[position : position + _CRC_AT], crc))
    crc = _crc32(view[position + _CRC_AT + 4 : end], crc)
    if crc != header.crc:
        raise FrameError(f"CRC is {crc:08x}, the header says {header.crc:08x}")
    return view[start:end]


def seed_of(head: bytes, term_id: bytes) -> int:
    """What the CRC of a body starts from, given its header's bytes; it ends as the header's."""
    crc = _crc32(head[_LSN_AT : _LSN_AT + 8], _crc32(term_id))
    crc = _crc32(_NO_CRC, _crc32(head[:_CRC_AT], crc))
    return _crc32(head[_CRC_AT + 4 : HEADER_SIZE], crc)


def decode_body(body: bytes | memoryview, count: int) -> list[Record]:
    """The records of a frame body whose CRC was verified. Raises `FrameError`."""
    try:
        records: list[Record] = msgpack.unpackb(
            body, use_list=True, strict_map_key=False, raw=False, unicode_errors="surrogateescape"
        )
    except Exception as error:
        raise FrameError(f"body is not MessagePack: {error}") from error
    if not isinstance(records, list) or len(records) != count:
        raise FrameError(f"body does not hold the {count} records its header announces")
    return records
