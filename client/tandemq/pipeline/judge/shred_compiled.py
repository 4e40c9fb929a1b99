"""Frames to lines by compiled code: the same lines as `shred.py` makes, many times faster.

Needs numba; the machine code is kept in its on-disk cache. Anything unusual is given up on, and
plain Python reads the frames instead.
"""

# Machine code: types are numba's, branches are what it is made of.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-overload"
# ruff: noqa: ANN001, ANN201, C901, PLR0911, PLR0912, PLR0913, RUF059
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from tandemq.model.errors import GaveUp
from tandemq.model.record import FrameHeader
from tandemq.pipeline.judge import words as w
from tandemq.spark.heads import ARRAY, BIG, BIN, INT, NIL, OTHER, STR, head, skip

Ints = Any
REC, CODE, SPACE, K0, K1, MASK, WIDTH, SIZE, PREFIX, REST, F0 = range(11)
FIELDS, LSN, COLUMNS = w.FIELDS, w.LSN, w.COLUMNS
UNSET, NIL_WORD, FALSE, TRUE = w.UNSET, w.NIL, w.FALSE, w.TRUE
TEXT = np.int64(1 << 62)
LOW62 = np.int64((1 << 62) - 1)
#: What a walk ends with.
DONE, MORE_ROOM, GIVE_UP = 0, 1, 2


#: CRC of the other sources in the machine code kept: a test compares it.
MADE_OF = 0xB792423E


def _crc_table() -> Any:
    table = np.zeros((8, 256), np.uint32)
    for number in range(256):
        value = number
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        table[0, number] = value
    for number in range(256):
        for row in range(1, 8):
            before = int(table[row - 1, number])
            table[row, number] = (before >> 8) ^ int(table[0, before & 255])
    return table


TABLE = _crc_table()
#: Only called from `walk`: no entry from Python is made for it.
inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy", _nrt=False)


@inner
def crc(data, at, end, table):
    value = np.uint32(0xFFFFFFFF)
    while at + 8 <= end:
        low = value ^ (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        value = (
            table[7, low & np.uint32(255)]
            ^ table[6, low >> np.uint32(8) & np.uint32(255)]
            ^ table[5, low >> np.uint32(16) & np.uint32(255)]
            ^ table[4, low >> np.uint32(24)]
            ^ table[3, data[at + 4]]
            ^ table[2, data[at + 5]]
            ^ table[1, data[at + 6]]
            ^ table[0, data[at + 7]]
        )
        at += 8
    while at < end:
        value = table[0, (value ^ np.uint32(data[at])) & np.uint32(255)] ^ value >> np.uint32(8)
        at += 1
    return np.int64(value ^ np.uint32(0xFFFFFFFF))


@inner
def digest(data, at, end, table):
    back = np.uint32(0xFFFFFFFF)
    place = end - 1
    while place >= at:
        back = table[0, (back ^ np.uint32(data[place])) & np.uint32(255)] ^ back >> np.uint32(8)
        place -= 1
    both = crc(data, at, end, table) << np.int64(30)
    both ^= np.int64(back ^ np.uint32(0xFFFFFFFF)) ^ (np.int64(end - at) << np.int64(16))
    return (both & LOW62) | TEXT


@inner
def word(data, at, end, table):
    """(word, place behind the value, negative where there is none)."""
    start = at
    kind, value, at = head(data, at, end)
    if kind == INT or kind == BIG:
        return value, at
    if kind == NIL:
        return np.int64(NIL_WORD), at
    if kind == OTHER and (data[start] == 0xC2 or data[start] == 0xC3):
        return np.int64(FALSE if data[start] == 0xC2 else TRUE), at
    if kind == STR:
        if at + value > end:
            return np.int64(0), -1
        if value == 1:
            return np.int64(data[at]), at + 1
        return digest(data, at, at + value, table), at + value
    if kind == BIN:
        if at + value > end:
            return np.int64(0), -1
        if value == 16:
            return digest(data, at, at + value, table), at + value
        found = crc(data, at, at + value, table)
        return found | (value & np.int64(0x3FFFFFFF)) << np.int64(32) | TEXT, at + value
    behind = skip(data, start, end)
    if behind < 0:
        return np.int64(0), -1
    return digest(data, start, behind, table), behind


@inner
def prefix(data, at, size):
    value = np.int64(0)
    for place in range(7):
        value = value << np.int64(8)
        if place < size:
            value |= np.int64(data[at + place])
    return value


@inner
def row(data, at, end, out, n, table):
    """A whole row into line `n`; the place behind it, negative to give up."""
    kind, fields, at = head(data, at, end)
    if kind != ARRAY or fields < 1:
        return -1
    out[WIDTH, n] = fields
    rest = np.int64(0)
    for field in range(fields):
        if field == 0 or field == fields - 1:
            what, size, behind = head(data, at, end)
            if field == 0 and what == STR and behind + size <= end:
                out[PREFIX, n] = prefix(data, behind, size)
            if field == fields - 1 and what == BIN:
                out[SIZE, n] = size
        value, at = word(data, at, end, table)
        if at < 0:
            return -1
        if field < FIELDS:
            out[F0 + field, n] = value
        else:
            rest = rest * np.int64(31) + value
    out[REST, n] = rest
    out[K0, n] = out[F0, n]
    if fields > 1:
        out[K1, n] = out[F0 + 1, n]
    return at


@inner
def key(data, at, end, out, n, table):
    kind, size, behind = head(data, at, end)
    if kind == ARRAY and size == 2:
        value, at = word(data, behind, end, table)
        if at < 0:
            return -1
        out[K0, n] = value
        value, at = word(data, at, end, table)
        out[K1, n] = value
        return at
    if kind == STR and behind + size <= end:
        out[PREFIX, n] = prefix(data, behind, size)
    value, at = word(data, at, end, table)
    out[K0, n] = value
    return at


@inner
def pairs(data, at, end, count, out, n, table):
    for _ in range(count):
        kind, field, at = head(data, at, end)
        if kind != INT:
            return -1
        value, at = word(data, at, end, table)
        if at < 0:
            return -1
        if 0 <= field < FIELDS:
            out[MASK, n] |= np.int64(1) << field
            out[F0 + field, n] = value
        else:
            out[MASK, n] |= np.int64(1) << np.int64(FIELDS)
            out[REST, n] = out[REST, n] * np.int64(31) + field + value
    return at


@inner
def begin(out, n, rec, code, space, lsn, time, what, session):
    out[REC, n], out[CODE, n], out[SPACE, n] = rec, code, space
    for column in range(K0, F0):
        out[column, n] = 0
    for column in range(F0, LSN):
        out[column, n] = UNSET
    out[LSN, n], out[LSN + 1, n], out[LSN + 2, n], out[LSN + 3, n] = lsn, time, what, session


@inner
def an_op(data, at, end, out, n, about, table):
    """One op: (place behind it, negative to give up; line behind its last, negative for room)."""
    rec, lsn, time, what, session = about
    kind, fields, at = head(data, at, end)
    if kind != ARRAY or fields < 1:
        return -1, n
    kind, code, at = head(data, at, end)
    if kind != INT:
        return -1, n
    if code < 1 or code > 11 or 4 <= code <= 8 or fields < 3:
        # Rare: only that it is there, and of which space.
        space, behind = np.int64(0), at
        if fields > 1:
            kind, value, behind = head(data, at, end)
            if kind == INT:
                space = value
        if n >= out.shape[1]:
            return at, -1
        begin(out, n, rec, code, space, lsn, time, what, session)
        for _ in range(fields - 1):
            at = skip(data, at, end)
            if at < 0:
                return -1, n
        return at, n + 1
    kind, space, at = head(data, at, end)
    if kind != INT:
        return -1, n
    count, single = np.int64(1), code
    if code >= 9:
        kind, count, at = head(data, at, end)
        if kind != ARRAY:
            return -1, n
        single = code - 8
    if n + count > out.shape[1]:
        return at, -1
    for line in range(n, n + count):
        begin(out, line, rec, single, space, lsn, time, what, session)
        if single == 1:
            at = row(data, at, end, out, line, table)
        else:
            at = key(data, at, end, out, line, table)
        if at < 0:
            return -1, n
    left = fields - 3
    if single == 2:
        if left & 1:
            return -1, n
        if count == 0:
            for _ in range(left):
                at = skip(data, at, end)
        start = at
        for line in range(n, n + count):
            at = pairs(data, start, end, left >> 1, out, line, table)
            if at < 0:
                return -1, n
    else:
        for _ in range(left):
            at = skip(data, at, end)
            if at < 0:
                return -1, n
    return at, n + count


@njit(cache=True, nogil=True, error_model="numpy")
def walk(data, starts, ends, firsts, counts, records, out, table):
    """Fills records and lines; (how it ended, records, lines)."""
    rec, n = 0, 0
    for frame in range(len(starts)):
        at, end = starts[frame], ends[frame]
        kind, many, at = head(data, at, end)
        if kind != ARRAY or many != counts[frame]:
            return GIVE_UP, rec, n
        for number in range(many):
            begins = at
            kind, fields, at = head(data, at, end)
            is_time, time, at = head(data, at, end)
            is_kind, what, at = head(data, at, end)
            if kind != ARRAY or fields != 4 or is_time != INT or is_kind != INT:
                return GIVE_UP, rec, n
            kind, size, behind = head(data, at, end)
            session = np.int64(0)
            if kind == NIL:
                at = behind
            else:
                session, at = word(data, at, end, table)
                if at < 0:
                    return GIVE_UP, rec, n
            kind, ops, at = head(data, at, end)
            if kind != ARRAY:
                return GIVE_UP, rec, n
            lsn = firsts[frame] + number
            about = (np.int64(rec), lsn, time, what, session)
            for _ in range(ops):
                at, n = an_op(data, at, end, out, n, about, table)
                if at < 0:
                    return GIVE_UP, rec, n
                if n < 0:
                    return MORE_ROOM, rec, n
            records[0, rec], records[1, rec], records[2, rec] = lsn, time, what
            records[3, rec], records[4, rec], records[5, rec] = session, begins, at
            rec += 1
        if at != end:
            return GIVE_UP, rec, n
    return DONE, rec, n


def shred_fast(data: bytes, frames: Sequence[tuple[FrameHeader, int]]) -> tuple[Ints, Ints]:
    """`shred.shred`. Raises `GaveUp`."""
    if not frames:
        return np.empty((w.R_COLUMNS, 0), np.int64), np.empty((COLUMNS, 0), np.int64)
    starts = np.array([at for _, at in frames], np.int64)
    ends = starts + np.array([header.length for header, _ in frames], np.int64)
    firsts = np.array([header.first_lsn for header, _ in frames], np.int64)
    counts = np.array([header.count for header, _ in frames], np.int64)
    total = int(counts.sum())
    records = np.empty((w.R_COLUMNS, total), np.int64)
    room = total + total // 4 + 64
    view = np.frombuffer(data, np.uint8)
    while True:
        out = np.empty((COLUMNS, room), np.int64)
        state, _, lines = walk(view, starts, ends, firsts, counts, records, out, TABLE)
        if state == GIVE_UP:
            raise GaveUp
        if state == DONE:
            return records, out[:, :lines]
        room *= 2
