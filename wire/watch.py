"""The watchers of one connection: which EVENT packets are due, once per acknowledgement.

Values live with the server, in one mapping all connections share; nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from model.errors import ER_ILLEGAL_PARAMS, QueueError
from wire.arguments import malformed
from wire.constants import KEY_EVENT
from wire.packets import missing_field
from wire.replies import event

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
    """`values` maps each key ever broadcast to its present value; the server keeps it up to date.

    Every method returns the packets to write, mostly none or one.
    """

    __slots__ = ("_values", "_watches")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._watches: dict[str, _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def __contains__(self, key: str) -> bool:
        return key in self._watches

    def watch(self, key: str, sync: int) -> list[bytes]:
        """WATCH: subscribe and be told at once, or acknowledge the EVENT that is out.

        Raises QueueError 1 for too many or too long keys; WATCH has no reply, so it is for a log.
        """
        watch = self._watches.get(key)
        if watch is None:
            if len(self._watches) >= KEYS_MAX or len(key) > KEY_CHARS_MAX:
                raise QueueError(ER_ILLEGAL_PARAMS, "too many or too long keys are watched")
            self._watches[key] = watch = _Watch(sync)
            return [self._tell(key, watch)]
        watch.sync = sync
        if watch.told and watch.stale:
            return [self._tell(key, watch)]
        watch.told = False
        return []

    def unwatch(self, key: str) -> None:
        """UNWATCH: nothing more for this key. Unknown keys are fine."""
        self._watches.pop(key, None)

    def changed(self, key: str) -> list[bytes]:
        """The key was broadcast: an EVENT now, or after the acknowledgement still to come."""
        watch = self._watches.get(key)
        if watch is None:
            return []
        if watch.told:
            watch.stale = True
            return []
        return [self._tell(key, watch)]

    def _tell(self, key: str, watch: _Watch) -> bytes:
        watch.told = True
        watch.stale = False
        return event(watch.sync, key, key in self._values, self._values.get(key))


def parse_key(body: dict[int, Any]) -> str:
    """The key of a WATCH, UNWATCH or WATCH_ONCE body. Raises QueueError 69 or 20."""
    key = body.get(KEY_EVENT)
    if key is None:
        raise missing_field("event key")
    if not isinstance(key, str):
        raise malformed("packet body")
    return key
