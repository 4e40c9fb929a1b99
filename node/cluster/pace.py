"""How fast a downstream on the same machine catches up while clients are served.

It takes the cores they need: while they keep the log busy it may have somewhat more than what they
add, so that it does come nearer, or a floor that leaves them most of a core; else everything at
once. A downstream elsewhere is fed without pace: reading and sending costs little.
"""

from __future__ import annotations

from tandemq.model.units import KIB, MIB, SECOND_US

#: Per cent of what is written meanwhile, or so many bytes a second if that is more.
RATIO_PERCENT, FLOOR_BYTES = 110, 5 * MIB
#: Clients keep the log busy when they add so many bytes a second, seen over so many µs at least,
#: and for so long after that: what the downstream takes from them must not look like a pause.
BUSY_BYTES, WINDOW_US, BUSY_US = MIB, 5_000, 100_000
#: Smaller portions are not worth a look into the log, larger ones take a core for milliseconds;
#: what may be saved up, unless one window allows more. In bytes.
PORTION_BYTES, SAVED_BYTES = 16 * KIB, 64 * KIB
#: What may be under way at most: little to be worked off when clients come back. In bytes.
FLIGHT_BYTES = 512 * KIB


class Pace:
    """What one downstream may be sent now. `written`: bytes this node's log took, ever growing."""

    def __init__(self, written: int, now_us: int) -> None:
        self._written = written
        self._at = now_us
        self._allowed = 0
        self._busy_until = 0

    def portion(self, written: int, now_us: int, most: int) -> int:
        """How many of `most` bytes may go; 0: ask again when more was written, or later."""
        elapsed = now_us - self._at
        if elapsed >= WINDOW_US:
            grown = written - self._written
            self._written, self._at = written, now_us
            if grown * SECOND_US >= BUSY_BYTES * elapsed:
                self._busy_until = now_us + BUSY_US
            more = max(RATIO_PERCENT * grown // 100, FLOOR_BYTES * elapsed // SECOND_US)
            self._allowed = min(self._allowed + more, max(SAVED_BYTES, more))
        if now_us >= self._busy_until:
            return most
        return min(self._allowed, most) if self._allowed >= min(PORTION_BYTES, most) else 0

    def sent(self, size: int) -> None:
        self._allowed = max(0, self._allowed - size)


def on_this_machine(address: str) -> bool:
    """The other end of a connection from `host:port` runs here."""
    host = address.rpartition(":")[0].strip("[]")
    return host.startswith("127.") or host == "::1"
