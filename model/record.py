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
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

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
FRAME_BODY_BYTES_MAX = 256 * 1024 * 1024
#: Where in a header the CRC and the first LSN stand.
_CRC_AT, _LSN_AT = 8, 16
_NO_CRC = bytes(4)

_packer = msgpack.Packer(use_bin_type=True, autoreset=True, unicode_errors="surrogateescape")
_pack_body = _packer.pack
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
    """One frame for one event-loop turn: the same bytes go to the disk and to every downstream."""
    body: bytes = _pack_body(records)
    count = len(records)
    bare = _HEADER.pack(FRAME_MAGIC, len(body), 0, term, first_lsn, count, commit_lsn)
    crc = _crc32(body, _crc32(bare, _seed(term_id, first_lsn)))
    return _HEADER.pack(FRAME_MAGIC, len(body), crc, term, first_lsn, count, commit_lsn) + body


def decode_header(buffer: bytes | memoryview, position: int = 0) -> FrameHeader:
    """Read a frame header at `position`. Raises `FrameError` (torn when bytes are missing)."""
    if len(buffer) - position < HEADER_SIZE:
        raise FrameError("header is cut short", torn=True)
    magic, length, crc, term, first_lsn, count, commit = _HEADER.unpack_from(buffer, position)
    if magic != FRAME_MAGIC:
        raise FrameError(f"not a frame: magic {bytes(magic)!r}")
    if length > FRAME_BODY_BYTES_MAX:
        raise FrameError(f"length {length} is over the limit of {FRAME_BODY_BYTES_MAX} bytes")
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
