"""What a node remembers of itself: a sample a second, coarser ones further back, tubes by rates.

Read from counters that are kept anyway; nothing is added to a call. The caller brings the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, cast

from tandemq_server.node.observe.answers import Peer, State
from tandemq_server.node.observe.inventory_answers import History, PeerLag, Sample, TubeRates
from tandemq_server.node.observe.metrics import counts_of

if TYPE_CHECKING:
    from tandemq_server.engine.tube import EngineTube
    from tandemq_server.node.core.core import Core

#: Seconds between samples, and how many are kept: 10 minutes, then 3 hours.
FINE_S, FINE_MAX = 1.0, 600
COARSE_S, COARSE_MAX = 15.0, 720
#: Tubes (the oldest ones) whose rates are kept, and marks of each: one minute of them.
TUBES_MAX = 200
MARK_S, MARKS_MAX = 2.0, 31
#: Marks a rate is taken over: the last ten seconds.
RATE_MARKS = 6


@dataclass(frozen=True, slots=True)
class CounterMark:
    """A tube at one moment: calls so far, tasks ready and taken (None: not counted)."""

    at: float
    put: int
    take: int
    ack: int
    release: int
    bury: int
    ready: int | None
    taken: int | None
    failed: int


def mark_of(tube: EngineTube, at: float) -> CounterMark:
    tasks, calls = counts_of(tube)
    get = calls.get
    return CounterMark(
        at,
        get("put", 0),
        get("take", 0),
        get("ack", 0),
        get("release", 0),
        get("bury", 0),
        tasks.get("ready"),
        tasks.get("taken"),
        get("release", 0) + get("ttr", 0) + (0 if tube.policy else get("bury", 0)),
    )


class Recorder:
    """Call `sample` about once a second."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.fine: deque[Sample] = deque(maxlen=FINE_MAX)
        self.coarse: deque[Sample] = deque(maxlen=COARSE_MAX)
        self.marks: dict[int, deque[CounterMark]] = {}
        self._marked = 0.0
        self._totals: tuple[float, int, int, int] | None = None

    def sample(self, at: float, peers: Iterable[Peer]) -> Sample:
        """Take a sample; `at` in seconds since the epoch."""
        core = self.core
        tubes = list(core.engine.tubes.values())
        if at - self._marked >= MARK_S or at < self._marked:
            self._mark(tubes, at)
        puts = sum(tube.calls["put"] for tube in tubes)
        takes = sum(tube.calls["take"] for tube in tubes)
        done = sum(tube.done for tube in tubes)
        rates = self._rates(at, puts, takes, done)
        last = [marks[-1] for marks in self.marks.values() if marks]
        sample = Sample(
            at,
            cast(State, core.state),
            core.term,
            core.engine.lsn,
            core.commit_lsn,
            *rates,
            sum(mark.ready or 0 for mark in last),
            sum(mark.taken or 0 for mark in last),
            len(core.connections),
            tuple(
                PeerLag(peer.name or peer.address, peer.role, peer.lag)
                for peer in peers
                if peer.role != "none" and peer.lag is not None
            ),
        )
        self.fine.append(sample)
        if not self.coarse or not 0 <= at - self.coarse[-1].at < COARSE_S:
            self.coarse.append(sample)
        return sample

    def _rates(self, at: float, puts: int, takes: int, done: int) -> tuple[float, float, float]:
        before, self._totals = self._totals, (at, puts, takes, done)
        if before is None or at <= before[0]:
            return 0.0, 0.0, 0.0
        over = at - before[0]
        # A tube that was dropped takes its counts along.
        put, take, gone = (
            max(0, now - then) / over
            for now, then in zip((puts, takes, done), before[1:], strict=True)
        )
        return put, take, gone

    def _mark(self, tubes: list[EngineTube], at: float) -> None:
        before, self._marked = self._marked, at
        known, self.marks = self.marks, {}
        for tube in islice(sorted(tubes, key=lambda tube: tube.id), TUBES_MAX):
            marks = known.get(tube.id)
            if marks is None or (marks and marks[-1].put > tube.calls["put"]):
                marks = deque(maxlen=MARKS_MAX)
                if before:
                    # New since the last marks, also where another one had its id: what was done
                    # with it was done since then.
                    marks.append(CounterMark(before, 0, 0, 0, 0, 0, None, None, 0))
            self.marks[tube.id] = marks
            try:
                marks.append(mark_of(tube, at))
            except Exception:
                # A custom driver that cannot count has no rates; metrics tell that it failed.
                marks.clear()

    # -- what is asked of it ---------------------------------------------------------------------

    def history(self, seconds: float) -> History:
        fine = seconds <= FINE_S * FINE_MAX
        samples = list(self.fine if fine else self.coarse)
        if samples:
            since = samples[-1].at - seconds
            samples = [sample for sample in samples if sample.at >= since]
        return History(FINE_S if fine else COARSE_S, tuple(samples))

    def rates(self, tube: EngineTube) -> TubeRates | None:
        """Over the last ten seconds; None for a tube that is not watched (long enough)."""
        marks = self.marks.get(tube.id)
        if marks is None or len(marks) < 2:
            return None
        new, old = marks[-1], marks[max(-RATE_MARKS, -len(marks))]
        over = new.at - old.at
        if over <= 0:
            return None
        return TubeRates(
            (new.put - old.put) / over,
            (new.take - old.take) / over,
            (new.ack - old.ack) / over,
            (new.release - old.release) / over,
            (new.bury - old.bury) / over,
            over,
        )

    def failed_per_minute(self, tube: EngineTube) -> float | None:
        """Attempts that ended without an ack, over the last minute: released, or out of time."""
        marks = self.marks.get(tube.id)
        if marks is None or len(marks) < 2 or marks[-1].at <= marks[0].at:
            return None
        over = marks[-1].at - marks[0].at
        return (marks[-1].failed - marks[0].failed) * 60 / max(over, 60.0)

    def means(self, tube: EngineTube) -> tuple[float | None, float | None]:
        """(wait, processing) in seconds, means over the last minute by Little's law."""
        marks = self.marks.get(tube.id)
        if marks is None or len(marks) < 2:
            return None, None
        new, old = marks[-1], marks[0]
        over = new.at - old.at
        if over <= 0:
            return None, None
        left = new.ack + new.release + new.bury - old.ack - old.release - old.bury
        return (
            _mean([mark.ready for mark in marks], (new.take - old.take) / over),
            _mean([mark.taken for mark in marks], left / over),
        )


def _mean(counts: list[int | None], rate: float) -> float | None:
    known = [count for count in counts if count is not None]
    if not known or rate <= 0:
        return None
    return sum(known) / len(known) / rate
