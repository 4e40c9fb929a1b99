"""MessagePack that is passed on as it came: task payloads, and strings that are not UTF-8.

The server never decodes a payload, so what a producer sent is what a consumer gets, to the byte.
"""

from __future__ import annotations


class Raw:
    """One value already encoded as MessagePack, spliced into replies as it stands."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Raw) and other.data == self.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"Raw({self.data!r})"


NIL = Raw(b"\xc0")


def raw_str(data: bytes) -> Raw:
    """`data` (at most 255 bytes) as a MessagePack str, whatever its bytes: session UUIDs."""
    if len(data) < 32:
        return Raw(bytes((0xA0 | len(data),)) + data)
    return Raw(b"\xd9" + bytes((len(data),)) + data)
