"""Frames to lines, in plain Python: a line for each row an op changes, a column for each field.

`compiled.py` does the same for large logs. Neither knows what a row means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgpack
import numpy as np

from tandemq.model.record import (
    DELETE,
    DELETE_MANY,
    INSERT,
    INSERT_MANY,
    SET,
    SET_MANY,
    FrameError,
    FrameHeader,
)
from tandemq.pipeline.judge import words as w

Ints = Any
_BLANK = [0] * w.F0 + [w.UNSET] * w.FIELDS + [0] * (w.COLUMNS - w.LSN)
_SINGLE = {INSERT: INSERT, INSERT_MANY: INSERT, SET: SET, SET_MANY: SET,
           DELETE: DELETE, DELETE_MANY: DELETE}  # fmt: skip


def shred(data: bytes | memoryview, frames: Iterable[tuple[FrameHeader, int]]) -> tuple[Ints, Ints]:
    """(records, lines) of frames whose bodies stand at these places of `data`.

    Raises `FrameError` for what is no list of records.
    """
    records: list[list[int]] = []
    lines: list[list[int]] = []
    for header, at in frames:
        _frame(memoryview(data)[at : at + header.length], at, header, records, lines)
    return _columns(records, w.R_COLUMNS), _columns(lines, w.COLUMNS)


def _columns(rows: list[list[int]], width: int) -> Ints:
    if not rows:
        return np.empty((width, 0), np.int64)
    return np.ascontiguousarray(np.array(rows, np.int64).T)


def _frame(
    body: memoryview, start: int, header: FrameHeader, records: list[Any], lines: list[Any]
) -> None:
    unpacker = msgpack.Unpacker(
        raw=False, strict_map_key=False, unicode_errors="surrogateescape", max_buffer_size=0
    )
    unpacker.feed(body)
    try:
        if unpacker.read_array_header() != header.count:
            raise FrameError("body does not hold the records its header announces")
        for number in range(header.count):
            begins = unpacker.tell()
            time, kind, session, ops = unpacker.unpack()
            place = [start + begins, start + unpacker.tell()]
            owner = 0 if session is None else w.word(session)
            known = [header.first_lsn + number, time, kind, owner]
            records.append([*known, *place])
            for op in ops:
                shred_op(op, len(records) - 1, known, lines)
    except FrameError:
        raise
    except Exception as error:
        raise FrameError(f"body is no list of records: {error}") from error


def shred_op(op: Sequence[Any], rec: int, known: Sequence[int], lines: list[list[int]]) -> None:
    """Append the lines of one op. known: LSN, time, kind and session of its record."""
    code, space = op[0], op[1] if isinstance(op[1], int) else 0
    what = _SINGLE.get(code)
    if what is None:
        line = [*_BLANK]
        line[w.REC], line[w.CODE], line[w.SPACE] = rec, code, space
        line[w.LSN :] = known
        lines.append(line)
        return
    for item in op[2] if code >= INSERT_MANY else (op[2],):
        line = [*_BLANK]
        line[w.REC], line[w.CODE], line[w.SPACE] = rec, what, space
        line[w.LSN :] = known
        if what == INSERT:
            _row(line, item)
        else:
            _key(line, item)
            if what == SET:
                _pairs(line, op[3:])
        lines.append(line)


def _row(line: list[int], row: Sequence[Any]) -> None:
    line[w.WIDTH] = len(row)
    for at, value in enumerate(row[: w.FIELDS]):
        line[w.F0 + at] = w.word(value)
    line[w.K0] = line[w.F0]
    line[w.K1] = line[w.F0 + 1] if len(row) > 1 else 0
    if len(row) > w.FIELDS:
        line[w.REST] = _rest(row[w.FIELDS :])
    if isinstance(row[0], str):
        line[w.PREFIX] = w.prefix(row[0].encode("utf-8", "surrogateescape"))
    if isinstance(row[-1], bytes):
        line[w.SIZE] = len(row[-1])


def _rest(values: Sequence[Any]) -> int:
    found = 0
    for value in values:
        found = w.signed(found * 31 + w.word(value))
    return found


def _key(line: list[int], key: Any) -> None:
    if isinstance(key, list) and len(key) == 2:
        line[w.K0], line[w.K1] = w.word(key[0]), w.word(key[1])
    else:
        line[w.K0] = w.word(key)
        if isinstance(key, str):
            line[w.PREFIX] = w.prefix(key.encode("utf-8", "surrogateescape"))


def _pairs(line: list[int], pairs: Sequence[Any]) -> None:
    for at in range(0, len(pairs) - 1, 2):
        field, value = pairs[at], pairs[at + 1]
        if 0 <= field < w.FIELDS:
            line[w.MASK] |= 1 << field
            line[w.F0 + field] = w.word(value)
        else:
            line[w.MASK] |= 1 << w.FIELDS
            line[w.REST] = w.signed(line[w.REST] * 31 + field + w.word(value))
