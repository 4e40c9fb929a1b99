"""When sessions that wait for their owner end: a clock of their own, and one timer for all of them.

Rows hold `exp_time` on a clock that stands still while nobody could claim a session: `later` µs
(a row of `_tandem_config`, so logged and replicated) are added to it for the clock on the wall.
A promotion and a pause thus cost one row, however many sessions wait.
"""

from __future__ import annotations

from sortedcontainers import SortedList

from tandemq_server.engine.system_spaces import SHARED_ACTIVE, SHARED_EXPIRES
from tandemq_server.spaces.index import Index
from tandemq_server.spaces.space import Row, Space

#: Kind of the sessions' entry among the timers (see spaces.store).
TIMER_SESSION = -2
#: The setting that holds `later`.
LATER = "sessions_later_us"


class SessionTimes(Index):
    """Sessions by whether somebody is connected, and those that wait by the moment they end.

    Follows the rows, so that a replica has it ready when it is promoted.
    """

    __slots__ = ("active", "later", "space", "timer", "timers", "waiting")

    def __init__(self) -> None:
        self.active: dict[bytes, None] = {}
        #: (exp_time of the row, session)
        self.waiting: SortedList = SortedList()
        self.later = 0
        self.timer: tuple[int, int, bytes] | None = None

    def attach(self, space: Space) -> None:
        assert space.store is not None
        self.space = space
        self.timers = space.store.timers

    def added(self, row: Row) -> None:
        if row[SHARED_ACTIVE]:
            self.active[row[0]] = None
            return
        entry = (row[SHARED_EXPIRES], row[0])
        self.waiting.add(entry)
        if self.waiting[0] is entry:
            self._set_timer()

    def removed(self, row: Row) -> None:
        if row[SHARED_ACTIVE]:
            del self.active[row[0]]
            return
        entry = (row[SHARED_EXPIRES], row[0])
        first = self.waiting[0] == entry
        self.waiting.remove(entry)
        if first:
            self._set_timer()

    def cleared(self) -> None:
        self.active.clear()
        self.waiting.clear()
        self._set_timer()

    def postpone(self, later_us: int) -> None:
        """The setting changed, by a call, from the log or from the master."""
        self.later = later_us
        self._set_timer()

    def _set_timer(self) -> None:
        if self.timer is not None:
            self.timers.discard(self.timer)
        self.timer = None
        if self.waiting:
            expires, session = self.waiting[0]
            self.timer = (expires + self.later, TIMER_SESSION, session)
            self.timers.add(self.timer)

    def check(self) -> None:
        rows = self.space.rows.values()
        assert set(self.active) == {row[0] for row in rows if row[SHARED_ACTIVE]}
        wanted = sorted((row[SHARED_EXPIRES], row[0]) for row in rows if not row[SHARED_ACTIVE])
        assert list(self.waiting) == wanted
        mine = [entry for entry in self.timers if entry[1] == TIMER_SESSION]
        assert mine == [(e + self.later, TIMER_SESSION, s) for e, s in wanted[:1]]
