"""What a task is looked for by: words in its payload, or a field of it with a value.

Here: bytes that must be in a log for it to be there, and whether a payload is meant.
Must not be here: reading the log (storage.finding, storage.past).
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, Protocol

import msgpack


class Sought(Protocol):
    """needles: one of them is in every payload that fits."""

    needles: tuple[bytes, ...]

    def fits(self, payload: bytes) -> bool:
        """Whether this payload, as it stands in the log, is meant."""
        ...


class Words:
    """A text anywhere in the payload."""

    def __init__(self, text: str) -> None:
        self.needles: tuple[bytes, ...] = (text.encode(),)

    def fits(self, payload: bytes) -> bool:
        """Whether it has the words."""
        return self.needles[0] in payload


class SoughtField:
    """A field on the payload's first level, be that a map or a text of JSON.

    value: as a person types it: a number, true or null is meant as such and as a text.
    """

    def __init__(self, name: str, value: str) -> None:
        self._name, self._values = name, [value]
        with contextlib.suppress(ValueError):
            self._values.append(json.loads(value))
        # MessagePack as it is packed shortest; JSON with a space behind the colon and without.
        needles = [msgpack.packb(name) + msgpack.packb(one) for one in self._values]
        for one in self._values:
            for ascii_only in (True, False):
                key, text = (json.dumps(each, ensure_ascii=ascii_only) for each in (name, one))
                needles += [f"{key}: {text}".encode(), f"{key}:{text}".encode()]
        self.needles: tuple[bytes, ...] = tuple(dict.fromkeys(needles))

    def fits(self, payload: bytes) -> bool:
        """Whether the field has the value."""
        try:
            found: Any = msgpack.unpackb(payload, strict_map_key=False)
            if isinstance(found, str | bytes):
                found = json.loads(found)
        except ValueError:
            return False
        if not isinstance(found, dict) or self._name not in found:
            return False
        value = found[self._name]
        return any(type(value) is type(one) and value == one for one in self._values)
