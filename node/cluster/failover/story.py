"""How a takeover went: one line that says why, and how long each part took."""

from __future__ import annotations


class Story:
    """Moments are of one monotonic clock, in µs. why: of the try that is under way."""

    def __init__(self) -> None:
        self.why = ""
        self.last = ""
        self._by_itself = False
        self._last_heard_us = self._began_us = self._asked_us = self._seated_us = 0

    def begin(self, why: str, now_us: int, last_heard_us: int = 0) -> None:
        """last_heard_us: when the master was last heard; 0 where that is not why."""
        self.why = why
        self._by_itself = now_us > 0
        self._began_us, self._last_heard_us = now_us, last_heard_us
        self._asked_us = self._seated_us = 0

    @property
    def takes_over(self) -> bool:
        """The try under way is by itself, because another node is gone."""
        return self._by_itself and self._last_heard_us > 0

    def asked(self, now_us: int) -> None:
        self._asked_us = now_us

    def seated(self, now_us: int) -> None:
        self._seated_us = now_us

    def serves(self, now_us: int, term: int) -> str:
        """The line to log; empty where it was an operator's doing."""
        if not self._by_itself or not self._seated_us:
            return ""
        found = (self._began_us - self._last_heard_us) if self._last_heard_us else 0
        parts = [
            *([f"found after {found // 1000} ms"] if self._last_heard_us else []),
            f"ready to ask after {(self._asked_us - self._began_us) // 1000} ms",
            f"seat {(self._seated_us - self._asked_us) // 1000} ms",
            f"serving {(now_us - self._seated_us) // 1000} ms",
        ]
        self.last = f"took the seat as term {term}: {self.why}; {', '.join(parts)}"
        self._by_itself = False
        return f"failover: {self.last}"
