"""How fast a downstream on the same machine catches up while clients are served.

It takes the cores they need: while they keep the log busy it may have a multiple of what they add,
so that it does come nearer, and a floor; else everything at once. A downstream elsewhere is fed
without pace: reading and sending costs little.
"""

from __future__ import annotations

#: So many bytes of backlog for each byte that is written meanwhile, and so many a second anyhow.
RATIO, FLOOR_BYTES = 2, 8 << 20
#: Clients keep the log busy when they add so many bytes a second, seen over so many µs.
BUSY_BYTES, WINDOW_US = 1 << 20, 10_000
#: Smaller portions are not worth a look into the log; what may be saved up. In bytes.
PORTION_BYTES, SAVED_BYTES = 32 << 10, 2 << 20


class Pace:
    """What one downstream may be sent now. `written`: bytes this node's log took, ever growing."""

    def __init__(self, written: int, now_us: int) -> None:
        self._written = written
        self._at = self._since = now_us
        self._grown = self._allowed = 0
        self._busy = False

    def portion(self, written: int, now_us: int, most: int) -> int:
        """How many of `most` bytes may go; 0: ask again when more was written, or later."""
        grown, elapsed = written - self._written, now_us - self._at
        self._written, self._at = written, now_us
        more = RATIO * grown + FLOOR_BYTES * elapsed // 1_000_000
        self._allowed = min(self._allowed + more, SAVED_BYTES)
        self._grown += grown
        if now_us - self._since >= WINDOW_US:
            self._busy = self._grown * 1_000_000 >= BUSY_BYTES * (now_us - self._since)
            self._since, self._grown = now_us, 0
        if not self._busy:
            return most
        return min(self._allowed, most) if self._allowed >= min(PORTION_BYTES, most) else 0

    def sent(self, size: int) -> None:
        self._allowed = max(0, self._allowed - size)


def on_this_machine(address: str) -> bool:
    """The other end of a connection from `host:port` runs here."""
    host = address.rpartition(":")[0].strip("[]")
    return host.startswith("127.") or host == "::1"
