"""When the partner takes the seat by itself, and how often it may.

Pure: what was seen of the master comes as an argument.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tandemq.model.units import SECOND_US

#: A dial that is refused for so long after the link broke: the process is gone.
REFUSED_US = 300_000
MINUTE_US, HOUR_US = 60_000_000, 3_600_000_000


class Seen(NamedTuple):
    """What this node has seen of the master.

    linked: a link lives; silent_us: since when nothing was heard, None if never in this process.
    refused_us: for how long dials have been refused or reset, None while they are not. key_gone:
    the arbiter has heard nothing of it for liveness_ttl, and says so after the silence began.
    asked: the master itself said that it ends.
    """

    linked: bool
    silent_us: int | None
    refused_us: int | None
    key_gone: bool
    asked: str


def gone(seen: Seen, silence_us: int, careful: bool) -> str:
    """Why the master counts as gone; empty while it does not.

    careful: what the arbiter has not confirmed is not believed: the master may acknowledge alone.
    """
    if seen.asked and not seen.linked:
        return seen.asked
    if seen.linked and (seen.silent_us or 0) < silence_us:
        return ""
    refused = seen.refused_us is not None and seen.refused_us >= REFUSED_US
    if refused and (seen.key_gone or (not careful and seen.silent_us is not None)):
        assert seen.refused_us is not None
        return f"its process is gone: refused for {seen.refused_us / SECOND_US:.2f} s"
    if seen.key_gone and (seen.silent_us is None or seen.silent_us >= silence_us):
        if seen.silent_us is None:
            return "nothing was ever heard of it here, nor does the arbiter hear it"
        silent = seen.silent_us / SECOND_US
        return f"silent for {silent:.2f} s, and the arbiter does not hear it either"
    return ""


class AnswerPace:
    """How often a node takes over automatically: so often a minute and an hour, then never."""

    def __init__(self, per_minute: int, per_hour: int) -> None:
        self.per_minute = per_minute
        self.per_hour = per_hour
        self._taken: deque[int] = deque()

    def took(self, now_us: int) -> None:
        self._taken.append(now_us)

    def forget(self) -> None:
        """An operator has looked at it."""
        self._taken.clear()

    def wait_us(self, now_us: int) -> int:
        """How long this minute's number keeps it waiting."""
        recent = [at for at in self._taken if now_us - at < MINUTE_US]
        if len(recent) < self.per_minute:
            return 0
        return recent[-self.per_minute] + MINUTE_US - now_us

    def spent(self, now_us: int) -> bool:
        """This hour's number is used up."""
        while self._taken and now_us - self._taken[0] >= HOUR_US:
            self._taken.popleft()
        return len(self._taken) >= self.per_hour
