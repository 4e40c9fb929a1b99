"""Heads of MessagePack values, compiled: what stands at a place and where the next value begins.

Numba looks only at kernel.py when it reuses machine code: its `MADE_OF` changes with this file.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LARGEST = 2**63 - 1

#: Only called from `walk`: no entry from Python is made for it.
compiled = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy", _nrt=False)
#: The same, put in where it is called: handing over arrays costs more than the work of these.
inlined = njit(
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    error_model="numpy",
    _nrt=False,
    forceinline=True,
)

INT, BIG, NIL, STR, BIN, ARRAY, MAP, EXT, OTHER, BAD = range(10)


@inlined
def number(data, at, size):
    value = np.uint64(0)
    for place in range(at, at + size):
        value = (value << np.uint64(8)) | np.uint64(data[np.uint64(place)])
    return value


@inlined
def eight(data, at):
    """The number of eight bytes at `at`. Written out, it becomes one load."""
    place = np.uint64(at)
    return (
        np.uint64(data[place]) << np.uint64(56)
        | np.uint64(data[place + np.uint64(1)]) << np.uint64(48)
        | np.uint64(data[place + np.uint64(2)]) << np.uint64(40)
        | np.uint64(data[place + np.uint64(3)]) << np.uint64(32)
        | np.uint64(data[place + np.uint64(4)]) << np.uint64(24)
        | np.uint64(data[place + np.uint64(5)]) << np.uint64(16)
        | np.uint64(data[place + np.uint64(6)]) << np.uint64(8)
        | np.uint64(data[place + np.uint64(7)])
    )


@compiled
def _wide(data, first, at, end):
    """What `head` says of a value that begins with `first`, for those it leaves to this."""
    if first == 0xC2 or first == 0xC3:
        return OTHER, 0, at
    # What follows is a length or a number of 1, 2, 4 or 8 bytes.
    if first >= 0xCC and first <= 0xD3:
        size = 1 << ((first - 0xCC) & 3)
        if at + size > end:
            return BAD, 0, at
        wide = eight(data, at) if size == 8 else number(data, at, size)
        at += size
        if first <= 0xCF:
            if wide > np.uint64(LARGEST):
                return BIG, LARGEST, at
            return INT, np.int64(wide), at
        shift = np.uint64(64 - 8 * size)
        return INT, np.int64(wide << shift) >> np.int64(shift), at
    if first == 0xCA or first == 0xCB:
        return OTHER, 0, at + (4 if first == 0xCA else 8)
    if first >= 0xD4 and first <= 0xD8:
        return EXT, (1 << (first - 0xD4)) + 1, at
    if first == 0xC1:
        return BAD, 0, at
    kind, size = BIN, 1
    if first >= 0xC4 and first <= 0xC6:
        size = 1 << (first - 0xC4)
    elif first >= 0xC7 and first <= 0xC9:
        kind, size = EXT, 1 << (first - 0xC7)
    elif first >= 0xD9 and first <= 0xDB:
        kind, size = STR, 1 << (first - 0xD9)
    elif first == 0xDC or first == 0xDD:
        kind, size = ARRAY, 2 << (first - 0xDC)
    else:
        kind, size = MAP, 2 << (first - 0xDE)
    if at + size > end:
        return BAD, 0, at
    count = np.int64(number(data, at, size))
    if kind == EXT:
        count += 1
    return kind, count, at + size


@inlined
def head(data, at, end):
    """(type, value or length, place behind the head) of the MessagePack value at `at`."""
    if at >= end:
        return BAD, 0, at
    first = np.int64(data[np.uint64(at)])
    at += 1
    if first < 0x80:
        return INT, first, at
    if first >= 0xE0:
        return INT, first - 256, at
    if first < 0x90:
        return MAP, first & 15, at
    if first < 0xA0:
        return ARRAY, first & 15, at
    if first < 0xC0:
        return STR, first & 31, at
    if first == 0xC0:
        return NIL, 0, at
    return _wide(data, first, at, end)


@compiled
def skip(data, at, end):
    """The place behind the value at `at`; negative if there is no whole one."""
    todo = 1
    while todo > 0:
        kind, value, at = head(data, at, end)
        todo -= 1
        if kind == BAD:
            return -1
        if kind == ARRAY:
            todo += value
        elif kind == MAP:
            todo += 2 * value
        elif kind == STR or kind == BIN or kind == EXT:
            at += value
        if at > end:
            return -1
    return at
