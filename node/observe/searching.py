"""Looking for words in tasks: their payload's strings and numbers, headers, reasons of failures.

Bytes are compared first, so that a page through many tasks costs little; only what may match is
read. Capitals do not count where they are ASCII.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq_server.engine import headers
from tandemq_server.engine.notes import failures_of
from tandemq_server.node.observe.preview import preview

if TYPE_CHECKING:
    from tandemq_server.engine.tube import EngineTube
    from tandemq_server.spaces.space import Row


def matches(tube: EngineTube, row: Row, needle: str) -> bool:
    """Whether a task has `needle`, in small letters, somewhere."""
    note = tube.notes.get(row[0])
    if any(needle in str(why).lower() for _, why in failures_of(note)):
        return True
    kept = headers.of(note) or {}
    if any(needle in f"{name}: {value}".lower() for name, value in kept.items()):
        return True
    try:
        payload = bytes(tube.shown(row)[-1])
    except Exception:
        return False
    if needle.encode("utf-8", "replace") in payload.lower():
        return True
    # A number is written in bytes that do not look like it.
    if not needle.lstrip("-").replace(".", "", 1).isdigit():
        return False
    return needle in preview(payload)[0]


def shown_options(opts: dict[str, Any]) -> dict[str, Any]:
    """Options as JSON can have them; those of drivers may hold anything."""
    return {str(name): _plain(value) for name, value in opts.items()}


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value)
