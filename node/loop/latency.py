"""Histograms of durations: one bisect per observation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

#: Upper bounds of latency buckets, in seconds.
SYNC_BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
#: The same for what takes microseconds where nothing is synced.
FAST_BUCKETS = (0.00001, 0.000025, 0.00005, *SYNC_BUCKETS)


class Latency:
    """A histogram: one bisect per observation. Seconds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SYNC_BUCKETS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += count
        self.sum += seconds * count

    def copy(self) -> Latency:
        """As it is now, for who reads it on another thread."""
        other = Latency(self.bounds)
        other.counts, other.sum = self.counts[:], self.sum
        return other

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as the format wants them."""
        total, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found
