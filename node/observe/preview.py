"""A task's payload as a person sees it: MessagePack written out as JSON, within bounds.

Only the first bytes are ever looked at, so that a page of large payloads costs the loop nothing.
What JSON does not have is shown as an object with one `$` member. Nothing here raises.
"""

from __future__ import annotations

import json
import struct
from typing import Any
from uuid import UUID

#: Bytes of a payload that are looked at, values shown in all, and levels of nesting.
BYTES_MAX = 4096
VALUES_MAX = 400
DEPTH_MAX = 12
#: What stands where something was left out.
CUT = "…"

_EXT_DECIMAL, _EXT_UUID, _EXT_DATETIME = 1, 2, 4
_FIXED: dict[int, tuple[str, int]] = {
    0xCA: (">f", 4),
    0xCB: (">d", 8),
    0xCC: (">B", 1),
    0xCD: (">H", 2),
    0xCE: (">I", 4),
    0xCF: (">Q", 8),
    0xD0: (">b", 1),
    0xD1: (">h", 2),
    0xD2: (">i", 4),
    0xD3: (">q", 8),
}


class _Cut(Exception):
    """The bytes, the values or the levels that may be looked at are used up."""


class _BoundedReader:
    """Reads values from `data` until a bound is met; `cut` tells whether one was."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.values = 0
        self.cut = False

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise _Cut
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def text(self, size: int) -> str:
        """A string, or as much of it as is there."""
        there = self.data[self.at : self.at + size]
        self.at += size
        if len(there) < size:
            self.cut = True
            return there.decode("utf-8", "ignore") + CUT
        return there.decode("utf-8", "replace")

    def binary(self, size: int) -> Any:
        there = self.data[self.at : self.at + size]
        self.at += size
        self.cut = self.cut or len(there) < size
        return {"$bin": there.hex() + (CUT if len(there) < size else "")}

    def extension(self, size: int) -> Any:
        kind = self.number(">b")
        body = self.take(size)
        if kind == _EXT_UUID and size == 16:
            return {"$uuid": str(UUID(bytes=body))}
        if kind == _EXT_DATETIME and size >= 8:
            return {"$datetime": struct.unpack("<q", body[:8])[0]}
        return {"$decimal" if kind == _EXT_DECIMAL else f"$ext{kind}": body.hex()}

    def value(self, depth: int = 0) -> Any:
        self.values += 1
        if self.values > VALUES_MAX or depth > DEPTH_MAX:
            raise _Cut
        first = self.number(">B")
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first < 0x90:
            return self.map(first & 0x0F, depth)
        if first < 0xA0:
            return self.array(first & 0x0F, depth)
        if first < 0xC0:
            return self.text(first & 0x1F)
        return self.longer(first, depth)

    def longer(self, first: int, depth: int) -> Any:
        """Types whose first byte says only what follows."""
        if first in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[first]
        if first in _FIXED:
            return self.number(_FIXED[first][0])
        if 0xD4 <= first <= 0xD8:
            return self.extension(1 << (first - 0xD4))
        if first in (0xC4, 0xC5, 0xC6):
            return self.binary(self.number((">B", ">H", ">I")[first - 0xC4]))
        if first in (0xC7, 0xC8, 0xC9):
            return self.extension(self.number((">B", ">H", ">I")[first - 0xC7]))
        if first in (0xD9, 0xDA, 0xDB):
            return self.text(self.number((">B", ">H", ">I")[first - 0xD9]))
        if first in (0xDC, 0xDD):
            return self.array(self.number((">H", ">I")[first - 0xDC]), depth)
        if first in (0xDE, 0xDF):
            return self.map(self.number((">H", ">I")[first - 0xDE]), depth)
        raise _Cut

    def array(self, count: int, depth: int) -> list[Any]:
        found: list[Any] = []
        for _ in range(count):
            try:
                found.append(self.value(depth + 1))
            except _Cut:
                self.cut = True
                found.append(CUT)
            if self.cut:
                break
        return found

    def map(self, count: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(count):
            name = CUT
            try:
                key = self.value(depth + 1)
                name = key if isinstance(key, str) else json.dumps(_plain(key), ensure_ascii=False)
                found[name] = self.value(depth + 1)
            except _Cut:
                self.cut = True
                found[name] = CUT
            if self.cut:
                break
        return found


def preview(payload: bytes, bytes_max: int = BYTES_MAX) -> tuple[str, bool]:
    """(JSON text, whether something was left out). Text that was cut still is JSON."""
    reader = _BoundedReader(payload[:bytes_max])
    try:
        value = reader.value()
    except _Cut:
        return json.dumps(CUT, ensure_ascii=False), True
    return json.dumps(_plain(value), ensure_ascii=False), reader.cut


def _plain(value: Any) -> Any:
    """Numbers that JSON does not have become text; NaN and the infinities are such."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"$float": str(value)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
