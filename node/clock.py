"""The log's clock: wall time that never runs backwards and is not moved by a jump of the wall.

One of the few places that may ask the operating system what time it is.
"""

from __future__ import annotations

import time

#: How fast the log's clock may be pulled towards the wall: half a millisecond per second.
SLEW_PPM = 500


class LogClock:
    """Microseconds since the epoch, counted by the monotonic clock from where it was set.

    A wall clock that jumps by hours moves this one by at most SLEW_PPM of the time that passes,
    so no deadline fires early because somebody corrected a clock.
    """

    def __init__(self, at_least_us: int = 0) -> None:
        """Start at the wall's time, or at the last time in the log if that is later."""
        self._origin_us = max(time.time_ns() // 1000, at_least_us)
        self._mono_us = time.monotonic_ns() // 1000
        self._slewed_us = self._mono_us

    def now(self) -> int:
        return self._origin_us + time.monotonic_ns() // 1000 - self._mono_us

    def slew(self) -> int:
        """Pull towards the wall clock, called now and then; the difference that remains, in µs."""
        mono = time.monotonic_ns() // 1000
        behind = time.time_ns() // 1000 - self.now()
        bound = (mono - self._slewed_us) * SLEW_PPM // 1_000_000
        step = max(-bound, min(bound, behind))
        self._slewed_us = mono
        self._origin_us += step
        return behind - step
