"""Keys of nodes that live a while: who was heard lately. Pure: time is an argument, in seconds.

The witness's own sleep (a stop, a paused machine) is no evidence about a node: while it slept it
could hear nobody, so by that much every key lives longer.
"""

from __future__ import annotations

from collections.abc import Iterable


class Liveness:
    """Keys of one witness. tick_s: how often `look` is called at least, when awake."""

    def __init__(self, now: float, tick_s: float) -> None:
        self._ends: dict[tuple[str, str], float] = {}
        self._seen = now
        self._tick_s = tick_s
        #: Seconds slept since the start, beyond ticks that came late.
        self.slept_s = 0.0

    def look(self, now: float) -> None:
        """Time has come to `now`; it is called before anything else is asked."""
        late = now - self._seen - self._tick_s
        if late > self._tick_s:
            self.slept_s += late
            self._ends = {key: end + late for key, end in self._ends.items()}
        self._seen = now

    def touch(self, cluster: str, node: str, now: float, ttl_s: float) -> None:
        self._ends[cluster, node] = now + ttl_s

    def living(self, cluster: str, now: float) -> frozenset[str]:
        return frozenset(
            node for (owner, node), end in self._ends.items() if owner == cluster and end > now
        )

    def forget(self, now: float) -> frozenset[str]:
        """Drop keys that are over; the clusters they were of."""
        over = [key for key, end in self._ends.items() if end <= now]
        for key in over:
            del self._ends[key]
        return frozenset(cluster for cluster, _ in over)

    def bring_back(self, cluster: str, nodes: Iterable[str], now: float, ttl_s: float) -> None:
        """After a restart: who lived before it gets the time to be heard again."""
        for node in nodes:
            self.touch(cluster, node, now, ttl_s)
