"""Time on a link: when to send a heartbeat, when the peer counts as dead, how far behind it is.

Every moment is microseconds of a monotonic clock, given by the caller. Nothing is sent from here.
"""

from __future__ import annotations

from collections import deque

from tandemq.model.units import SECOND_US

HEARTBEAT_US = SECOND_US
SILENCE_US = 5_000_000


class Pulse:
    """One end's view of a link's liveness. `tick` at least twice per heartbeat."""

    __slots__ = ("_beat_us", "_due_us", "_heard_us", "_silence_us", "_ticked_us")

    def __init__(
        self, now_us: int, heartbeat_us: int = HEARTBEAT_US, silence_us: int = SILENCE_US
    ) -> None:
        assert 0 < heartbeat_us < silence_us
        self._beat_us = heartbeat_us
        self._silence_us = silence_us
        self._due_us = now_us
        self._heard_us = now_us
        self._ticked_us = now_us

    def heard(self, now_us: int) -> None:
        """Anything arrived from the peer."""
        self._heard_us = max(self._heard_us, now_us)

    def tick(self, now_us: int) -> bool:
        """Time passed. True when a heartbeat is due now (then it counts as sent).

        A gap between two ticks as long as half the silence is a pause of this process, not of the
        peer, whose words may wait in a buffer: the peer gets that time on top.
        """
        gap = now_us - self._ticked_us
        if gap > self._silence_us // 2:
            self._heard_us += gap
        self._ticked_us = max(self._ticked_us, now_us)
        if now_us < self._due_us:
            return False
        self._due_us = now_us + self._beat_us
        return True

    def dead(self, now_us: int) -> bool:
        """Nothing was heard for longer than the silence allowed."""
        return now_us - self._heard_us > self._silence_us

    def age_us(self, now_us: int) -> int:
        """How long ago the peer was heard."""
        return max(0, now_us - self._heard_us)

    @property
    def now_us(self) -> int:
        """The last moment `tick` was told."""
        return self._ticked_us

    @property
    def due_us(self) -> int:
        """When `tick` should be called at the latest."""
        return min(self._due_us, self._heard_us + self._silence_us + 1)


class LagClock:
    """How long ago the end of the log was where a follower is now.

    Keeps at most SAMPLES_MAX points (LSN, time); when they are full they get coarser. An answer
    is never too small, and too large by at most the grain.
    """

    SAMPLES_MAX = 512
    __slots__ = ("_grain_us", "_samples")

    def __init__(self, grain_us: int = 50_000) -> None:
        self._grain_us = grain_us
        #: (last LSN, when the first record of this sample came), ascending in both.
        self._samples: deque[tuple[int, int]] = deque()

    def grew(self, last_lsn: int, now_us: int) -> None:
        """The log now ends at `last_lsn`."""
        samples = self._samples
        if samples:
            if last_lsn <= samples[-1][0]:
                return
            if now_us - samples[-1][1] < self._grain_us:
                samples[-1] = (last_lsn, samples[-1][1])
                return
        samples.append((last_lsn, now_us))
        if len(samples) > self.SAMPLES_MAX:
            self._grain_us *= 2
            pairs = list(samples)
            samples.clear()
            for at in range(0, len(pairs), 2):
                upper = pairs[min(at + 1, len(pairs) - 1)]
                samples.append((upper[0], pairs[at][1]))

    def lag_us(self, follower_lsn: int, now_us: int) -> int:
        """Age of the oldest record the follower lacks, 0 when it lacks none."""
        samples = self._samples
        while samples and samples[0][0] <= follower_lsn:
            samples.popleft()
        return max(0, now_us - samples[0][1]) if samples else 0


class ClockOffset:
    """How far the peer's log clock is ahead of ours, in µs, from one-way heartbeats.

    A heartbeat arrives late, never early: of the last few, the one that shows the peer furthest
    ahead travelled fastest and is nearest to the truth, which is above it by its travel time.
    """

    SAMPLES = 16
    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[int] = deque(maxlen=self.SAMPLES)

    def heard(self, peer_clock_us: int, own_clock_us: int) -> None:
        self._samples.append(peer_clock_us - own_clock_us)

    @property
    def offset_us(self) -> int | None:
        """None before the first heartbeat."""
        return max(self._samples) if self._samples else None

    @property
    def spread_us(self) -> int:
        """How much the samples differ: the uncertainty of the offset."""
        return max(self._samples) - min(self._samples) if self._samples else 0
