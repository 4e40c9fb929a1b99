"""How the judge keeps values: every field of every row is one 64-bit word.

Numbers are themselves, a text of one character is its code, anything longer is a digest of its
bytes. Two words are equal where the values are, but for digests that collide (one in 2**61).
"""

from __future__ import annotations

import zlib
from typing import Any

import msgpack

#: Lines of a shredded log, by column: the record's place in its chunk, what the op does, the space,
#: the key's parts, which fields are given (bits), how many there are, bytes of the payload, the
#: first bytes of a text key (for its order), a digest of the fields behind the last one kept.
REC, CODE, SPACE, K0, K1, MASK, WIDTH, SIZE, PREFIX, REST, F0 = range(11)
#: Fields of a row that have a column each.
FIELDS = 14
#: Behind them what is known of the line's record: LSN, time, kind, session.
LSN = F0 + FIELDS
TIME, KIND, SESSION = range(LSN + 1, LSN + 4)
COLUMNS = SESSION + 1
#: Of records: LSN, time, kind, session, first byte and byte behind the last.
R_LSN, R_TIME, R_KIND, R_SESSION, R_START, R_END = range(6)
R_COLUMNS = 6

UNSET, NIL, FALSE, TRUE = (-(2**63) + n for n in range(4))
LARGEST = 2**63 - 1
_TEXT = 1 << 62


def digest(data: bytes) -> int:
    """Of texts and small bytes: the CRCs of the bytes from either side."""
    both = zlib.crc32(data) << 30 ^ zlib.crc32(data[::-1]) ^ len(data) << 16
    return both & (_TEXT - 1) | _TEXT


def payload_word(data: bytes) -> int:
    """Of larger bytes: CRC and length."""
    return zlib.crc32(data) | (len(data) & 0x3FFFFFFF) << 32 | _TEXT


def prefix(data: bytes) -> int:
    """The first seven bytes as a number: where they differ they tell the order of two texts."""
    return int.from_bytes(data[:7].ljust(7, b"\0"), "big")


def text_word(text: str) -> int:
    """The word of a text."""
    data = text.encode("utf-8", "surrogateescape")
    return data[0] if len(data) == 1 else digest(data)


def word(value: Any) -> int:
    """The word of any value of a row."""
    kind = type(value)
    if kind is int:
        return int(min(value, LARGEST))
    if kind is str:
        return text_word(value)
    if kind is bytes:
        return digest(value) if len(value) == 16 else payload_word(value)
    if value is None:
        return NIL
    if kind is bool:
        return TRUE if value else FALSE
    packed: bytes = msgpack.packb(value, use_bin_type=True, unicode_errors="surrogateescape")
    return digest(packed)


def signed(number: int) -> int:
    """A number of 64 bits as numpy's int64 has it."""
    number &= 2**64 - 1
    return number - 2**64 if number >> 63 else number
