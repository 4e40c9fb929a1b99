"""The log's clock: wall time that never runs backwards and is not moved by a jump of the wall.

One of the few places that may ask the operating system what time it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: How fast the log's clock may be pulled towards the wall: half a millisecond per second.
SLEW_PPM = 500
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_us() -> int:
    """Microseconds of the monotonic clock; for durations, never for what is logged."""
    return time.monotonic_ns() // 1000


def boottime_us() -> int:
    """Microseconds of a clock like the monotonic one that goes on while the machine sleeps."""
    return time.clock_gettime_ns(_BOOTTIME) // 1000


def wall_us() -> int:
    """Microseconds since the epoch, as the operating system has it at the moment."""
    return time.time_ns() // 1000


class LogClock:
    """Microseconds since the epoch, counted by a clock that never jumps from where it was set.

    That clock goes on while the machine sleeps: ttl and delay are promises about the time outside.

    A wall clock that jumps by hours moves this one by at most SLEW_PPM of the time that passes,
    so no deadline fires early because somebody corrected a clock. A follower keeps its master's
    log clock instead of its own: deadlines in the log are moments of that clock.
    """

    def __init__(
        self,
        at_least_us: int = 0,
        wall: Callable[[], int] = wall_us,
        mono: Callable[[], int] = boottime_us,
    ) -> None:
        """Start at the wall's time, or at the last time in the log if that is later."""
        self._wall = wall
        self._mono = mono
        self._own_us = self._origin_us = max(wall(), at_least_us)
        self._mono_us = mono()
        self._slewed_us = self._mono_us

    @property
    def mono(self) -> Callable[[], int]:
        """What it counts by: µs, from where nobody knows."""
        return self._mono

    def now(self) -> int:
        return self._origin_us + self._mono() - self._mono_us

    def own(self) -> int:
        """What this clock would show had it followed no other: what offsets are taken against."""
        return self._own_us + self._mono() - self._mono_us

    def follow(self, offset_us: int) -> None:
        """The clock to keep is `offset_us` ahead of `own`; `now` is that clock from here on."""
        self._origin_us = self._own_us + offset_us

    def at_least(self, moment_us: int) -> None:
        """Go on from a moment of the log that this clock has not reached: time must not stand."""
        self._origin_us += max(0, moment_us - self.now())

    def slew(self) -> int:
        """Pull towards the wall clock, called now and then; the difference that remains, in µs."""
        mono = self._mono()
        behind = self._wall() - self.now()
        bound = (mono - self._slewed_us) * SLEW_PPM // 1_000_000
        step = max(-bound, min(bound, behind))
        self._slewed_us = mono
        self._origin_us += step
        return behind - step
