"""Which time a report is about: from where to where, in which grain, and its two periods.

The period is the newest of the log that has another as long before it: only then is there
something to compare it with. A log too short for that is one period.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from tandemq.model.units import DAY_US, HOUR_US, SECOND_US
from tandemq.pipeline.arrays import Ints

MINUTE_US = 60 * SECOND_US
#: The finest in which the log has at most SLOTS of them is taken.
GRAINS_US = (
    SECOND_US,
    10 * SECOND_US,
    MINUTE_US,
    5 * MINUTE_US,
    15 * MINUTE_US,
    HOUR_US,
    6 * HOUR_US,
    DAY_US,
    7 * DAY_US,
    28 * DAY_US,
)
SLOTS = 100
#: The longest that the log has twice is taken.
_HOURS, _MINUTES = (6 * HOUR_US, HOUR_US), (10 * MINUTE_US, MINUTE_US)
PERIODS_US = (30 * DAY_US, 7 * DAY_US, DAY_US, *_HOURS, *_MINUTES)
#: Number of a period: the one the report is about, the one before, and what was earlier still.
CURRENT, BEFORE, EARLIER = 0, 1, 2


@dataclass(frozen=True)
class TimeSpan:
    """first_us, last_us: of the log's events. period_us: 0 where there is none before."""

    first_us: int
    last_us: int
    grain_us: int
    period_us: int

    @property
    def begins_us(self) -> int:
        """When the period that the report is about begins."""
        return self.last_us - self.period_us if self.period_us else self.first_us

    @property
    def compared(self) -> bool:
        """There is a period before."""
        return self.period_us > 0

    @property
    def periods(self) -> tuple[int, ...]:
        return (CURRENT, BEFORE) if self.compared else (CURRENT,)

    def of(self, us: Ints) -> Ints:
        """The period of each moment; the first moment of one belongs to it."""
        if not self.compared:
            return np.zeros(len(us), np.int64)
        ago = (self.last_us - us) // self.period_us
        # What is exactly one period ago begins the current one.
        ago -= (self.last_us - us) % self.period_us == 0
        return np.clip(ago, CURRENT, EARLIER)

    def bounds(self, period: int) -> tuple[int, int]:
        """(from, to) of a period."""
        if not self.compared:
            return self.first_us, self.last_us
        return self.last_us - (period + 1) * self.period_us, self.last_us - period * self.period_us


def span(moments: Iterable[tuple[int, int]]) -> TimeSpan:
    """The span of (first, last) of its parts; without any it is a second long and empty."""
    found = list(moments)
    if not found:
        return TimeSpan(0, 0, SECOND_US, 0)
    first, last = min(one for one, _ in found), max(one for _, one in found)
    length = last - first
    grain = next((us for us in GRAINS_US if length <= us * SLOTS), GRAINS_US[-1])
    period = next((us for us in PERIODS_US if 2 * us <= length), 0)
    return TimeSpan(first, last, grain, period)


#: Columns with the moments of tasks and deliveries.
MOMENTS = ("put_us", "ended_us", "taken_us")
READERS = 8


def of_files(files: Iterable[str]) -> TimeSpan:
    """The span of a history's files; only what stands at their ends is read."""
    with ThreadPoolExecutor(READERS) as readers:
        return span(bounds for bounds in readers.map(bounds_of, files) if bounds is not None)


def bounds_of(file: str) -> tuple[int, int] | None:
    """(first, last) of the moments of a file; None where it has none."""
    meta = pq.read_metadata(file)
    found: list[int] = []
    for group in range(meta.num_row_groups):
        for at in range(meta.num_columns):
            column = meta.row_group(group).column(at)
            told = column.statistics
            if column.path_in_schema in MOMENTS and told is not None and told.has_min_max:
                found += (told.min, told.max)
    return (min(found), max(found)) if found else None
