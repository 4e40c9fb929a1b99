"""The watchers of one connection: which EVENT packets are due, once per acknowledgement.

Values are the server's and come with each call; nothing is sent from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tandemq.model.errors import ER_ILLEGAL_PARAMS, QueueError
from tandemq_server.wire.arguments import malformed
from tandemq_server.wire.constants import KEY_EVENT_KEY
from tandemq_server.wire.packets import missing_field
from tandemq_server.wire.replies import event

# Enough for every key there is; a limit because clients choose the keys.
KEYS_MAX: Final = 256
KEY_CHARS_MAX: Final = 1024


@dataclass(slots=True)
class _Watch:
    """`told`: an EVENT is out and not acknowledged. `stale`: the value moved since."""

    sync: int
    told: bool = False
    stale: bool = False


class Watchers:
    """Which keys one connection watches, and what it has been told of them."""

    __slots__ = ("_watches",)

    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def __contains__(self, key: str) -> bool:
        return key in self._watches

    def watch(self, key: str, sync: int, has_value: bool, value: Any = None) -> bytes | None:
        """WATCH: subscribe and be told at once, or acknowledge the EVENT that is out.

        `value` is the key's present one, `has_value` False if it was never broadcast. Returns the
        packet to write, if any. Raises QueueError 1 for too many keys or one too long.
        """
        watch = self._watches.get(key)
        if watch is None:
            if len(self._watches) >= KEYS_MAX or len(key) > KEY_CHARS_MAX:
                raise QueueError(ER_ILLEGAL_PARAMS, "too many or too long keys are watched")
            self._watches[key] = watch = _Watch(sync)
        else:
            watch.sync = sync
            if not watch.stale:
                watch.told = False
                return None
        watch.told = True
        watch.stale = False
        return event(sync, key, has_value, value)

    def unwatch(self, key: str) -> None:
        """UNWATCH: nothing more for this key. Unknown keys are fine."""
        self._watches.pop(key, None)

    def changed(self, key: str, value: Any) -> list[bytes]:
        """The key was broadcast: packets to write, none before the last one is acknowledged."""
        watch = self._watches.get(key)
        if watch is None:
            return []
        if watch.told:
            watch.stale = True
            return []
        watch.told = True
        return [event(watch.sync, key, True, value)]


def parse_key(body: dict[int, Any]) -> str:
    """The key of a WATCH, UNWATCH or WATCH_ONCE body. Raises QueueError 69 or 20."""
    key = body.get(KEY_EVENT_KEY)
    if key is None:
        raise missing_field("event key")
    if not isinstance(key, str):
        raise malformed("packet body")
    return key
