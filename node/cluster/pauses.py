"""Notices that this process stood still: stopped, swapped out, its machine paused or asleep.

Acknowledgements wait in sockets then. They are read before any deadline is handled, and leases get
the time back (engine.leases). Pure: moments are arguments' business, the rim calls `look` often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tandemq.model.units import SECOND_US
from tandemq_server.engine import leases

if TYPE_CHECKING:
    from tandemq_server.node.core.core import Core

#: How often the rim looks, in seconds.
LOOK_SECONDS = 0.1
#: The loop did not run for longer than this: a pause. Shorter ones are an everyday turn's length.
PAUSE_US = 400_000
#: Seconds for which deadlines wait after a pause, and sockets are read.
READ_SECONDS = 0.05


class ProcessPauses:
    """Every deadline is handled with its leave (`Core.may_tick`).

    mono(): µs of a clock that goes on while the machine sleeps. now(): of the log's clock.
    read_first(f): call `f` when what waits in sockets has been read. told(seconds): it was over.
    """

    def __init__(
        self,
        core: Core,
        mono: Callable[[], int],
        now: Callable[[], int],
        read_first: Callable[[Callable[[], None]], object],
        told: Callable[[float], None],
    ) -> None:
        self.core = core
        self.mono = mono
        self.now = now
        self.read_first = read_first
        self.told = told
        #: Pauses so far, and the seconds they took.
        self.count = 0
        self.seconds = 0.0
        self._seen_us = mono()
        self._owed_us = 0
        #: By the log's clock: leases that are younger did not see the pause; the last look.
        self._since = self._alive = now()
        #: A pause is over and what waits in sockets is being read: no deadline is handled.
        self.reading = False
        core.may_tick = self.look
        core.unpaid_us = self._hand_over

    def look(self) -> bool:
        """The loop runs. Whether deadlines may be handled at this moment."""
        seen = self.mono()
        gap = seen - self._seen_us
        self._seen_us = seen
        if gap > PAUSE_US:
            self._paused(gap)
        self._alive = self.now()
        return not self.reading

    def _paused(self, gap_us: int) -> None:
        self.count += 1
        self.seconds += gap_us / SECOND_US
        self._owed_us += gap_us
        if not self.reading:
            self.reading = True
            # It began soon after the last look, and ended just now: leases given in the first
            # half were there before it.
            self._since = self._alive + gap_us // 2
            self.read_first(self._settle)
        self.told(gap_us / SECOND_US)

    def _hand_over(self) -> int:
        """The node stops to serve, before all were given their time: who serves next gives it."""
        self.look()
        owed, self._owed_us = self._owed_us, 0
        return owed

    def _settle(self) -> None:
        """What waited in sockets is read: leases get their time, then deadlines have their turn.

        A node that learnt meanwhile that another one leads has no leases to care for.
        """
        self.look()
        self.reading = False
        owed, self._owed_us = self._owed_us, 0
        engine = self.core.engine
        if engine.running:
            engine.now = max(engine.now, self.now())
            leases.prolong(engine, owed, self._since)
        self.core.advance(engine.now)
