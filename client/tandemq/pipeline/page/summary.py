"""What a report says first: figures of the period beside those before, capacity, and a verdict.

Pure functions of the report's tables. The thresholds are here, and the page tells them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tandemq.pipeline.periods import quantile
from tandemq.pipeline.spans import CURRENT, TimeSpan

if TYPE_CHECKING:
    import pandas as pd

#: By name, as `report_tables.tables` makes them.
Tables = Mapping[str, "pd.DataFrame"]

#: A tube falls behind when the tasks in it became so many more and less than this share left.
GREW_MIN, LEFT_SHARE = 10, 0.95
#: Shares of deliveries that failed, of FEW_MIN at least: worth a look, and to be acted upon.
FAILED_LOOK, FAILED_ACT, FEW_MIN = 0.02, 0.20, 10
#: Consumers are near their limit from here on.
BUSY_LOOK = 0.85
OK, LOOK, ACT = "ok", "look", "act"
GRAVITY = {ACT: 0, LOOK: 1, OK: 2}


@dataclass(frozen=True)
class Flow:
    """What came, left and failed in a period; of a tube, or of all."""

    puts: int = 0
    left: int = 0
    acked: int = 0
    takes: int = 0
    failed: int = 0
    there_before: int = 0
    there_after: int = 0

    @property
    def grew(self) -> int:
        return self.there_after - self.there_before

    @property
    def failed_share(self) -> float | None:
        return self.failed / self.takes if self.takes else None

    @property
    def behind(self) -> bool:
        return self.grew >= GREW_MIN and self.left < LEFT_SHARE * self.puts

    @property
    def failing(self) -> str:
        """How grave the failures are."""
        share = self.failed_share
        if share is None or self.takes < FEW_MIN or share < FAILED_LOOK:
            return OK
        return ACT if share >= FAILED_ACT else LOOK

    @property
    def state(self) -> str:
        return ACT if self.behind else self.failing

    @property
    def says(self) -> str:
        """The state in a few words."""
        words = ["falls behind"] if self.behind else []
        if self.failing != OK and self.failed_share is not None:
            words.append(f"{self.failed_share:.0%} of deliveries fail")
        if not words:
            words.append("keeps up" if self.puts or self.takes or self.left else "quiet")
        return ", ".join(words)


def flows(tables: Tables, period: int) -> dict[str, Flow]:
    """By tube; tubes of which nothing happened in the period are not there."""
    table = tables["periods"]
    names = [*Flow.__dataclass_fields__]
    rows = table[table["period"] == period]
    return {
        tube: Flow(*map(int, values))
        for tube, *values in rows[["tube", *names]].itertuples(index=False)
    }


def total(of: Mapping[str, Flow]) -> Flow:
    names = [*Flow.__dataclass_fields__]
    return Flow(*(sum(getattr(one, name) for one in of.values()) for name in names))


def durations(table: pd.DataFrame, period: int, measure: str) -> dict[str, float | None]:
    """p50, p95, p99 in ms of a period, to a tenth of their value; table: `distribution`."""
    rows = table[(table["period"] == period) & (table["measure"] == measure)]
    bins = rows.groupby("from_ms")[["deliveries", "total_ms"]].sum()
    counts, sums = bins["deliveries"].to_numpy(), bins["total_ms"].to_numpy()
    return {f"p{int(q * 100)}": quantile(counts, sums, q) for q in (0.5, 0.95, 0.99)}


@dataclass(frozen=True)
class Capacity:
    """What consumers did in a period, and what they could have done. Rates are per second.

    busy: tasks in hand on average; present: consumers that were there on average.
    """

    seconds: float
    arrival: float
    service: float
    consumers: int
    busy: float
    present: float

    @property
    def utilisation(self) -> float | None:
        """Of the time that consumers were there they had a task; above 1: several at once."""
        return self.busy / self.present if self.present else None

    @property
    def most(self) -> float | None:
        """The rate they could reach: as fast a task as now, without a pause between two."""
        used = self.utilisation
        return self.service / used if used and used <= 1 and self.service else None


def capacity(tables: Tables, span: TimeSpan, period: int) -> Capacity:
    """Of all tubes; what is acknowledged is served."""
    begins, ends = span.bounds(period)
    seconds = max((ends - begins) / 1e6, 1e-6)
    flow = total(flows(tables, period))
    table = tables["consumers"]
    row = next(iter(table[table["period"] == period].to_dict("records")), None)
    count, present, busy = (
        (int(row["consumers"]), row["present_s"], row["busy_s"]) if row else (0, 0.0, 0.0)
    )
    rates = flow.puts / seconds, flow.acked / seconds
    return Capacity(seconds, *rates, count, busy / seconds, present / seconds)


@dataclass(frozen=True)
class ReportVerdict:
    """state: ok, look or act; says: one sentence; reasons: what it is made of."""

    state: str
    says: str
    reasons: tuple[str, ...]


def verdict(tables: Tables, span: TimeSpan) -> ReportVerdict:
    """Of the current period."""
    of = flows(tables, CURRENT)
    if not of:
        return ReportVerdict(OK, "The log holds no task.", ())
    behind = [tube for tube, one in of.items() if one.behind]
    grave = [tube for tube, one in of.items() if one.failing == ACT]
    light = [tube for tube, one in of.items() if one.failing == LOOK]
    used = capacity(tables, span, CURRENT).utilisation
    reasons = []
    if behind:
        grew = sum(of[tube].grew for tube in behind)
        reasons.append(f"{_tubes(behind)} behind: {grew:,} more tasks wait than at the start.")
    if grave:
        share = f"{FAILED_ACT:.0%}"
        reasons.append(f"{_tubes(grave, 'fail', 'fails')}: {share} or more of the deliveries.")
    if light:
        share = f"{FAILED_LOOK:.0%}"
        reasons.append(f"{_tubes(light, 'see', 'sees')} {share} or more of the deliveries fail.")
    if used is not None and BUSY_LOOK <= used <= 1:
        reasons.append(f"Consumers are at work {used:.0%} of their time: near their limit.")
    if behind or grave:
        count = len({*behind, *grave})
        needs = "needs" if count == 1 else "need"
        return ReportVerdict(ACT, f"{count:,} of {_all(len(of))} {needs} action.", tuple(reasons))
    if reasons:
        return ReportVerdict(LOOK, "The queue keeps up, with something to look at.", tuple(reasons))
    what = "The tube keeps" if len(of) == 1 else f"All {_all(len(of))} keep"
    return ReportVerdict(OK, f"{what} up, and hardly anything fails.", ())


def _all(count: int) -> str:
    return "1 tube" if count == 1 else f"{count:,} tubes"


def _tubes(names: list[str], many: str = "fall", one: str = "falls") -> str:
    return f"{_all(len(names))} {one if len(names) == 1 else many}"
