"""A space that holds many tubes: takes and waiting by lane, statistics by lane.

What a driver with `lanes` gets instead of a plain tube. Everything else, ownership, sessions,
deadlines and promotion, is the engine's as for any other.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq.model.record import KIND_TAKE
from tandemq_server.engine import attempts, expiry, waiting
from tandemq_server.engine.clients import EMPTY, PENDING, EngineClient, Waiter, _Sentinel
from tandemq_server.engine.tube import EngineTube
from tandemq_server.spaces.space import Row, Space

if TYPE_CHECKING:
    from tandemq_server.drivers.base import Driver
    from tandemq_server.engine.ports import EnginePort

#: Lanes whose counters are kept after their last task went; the oldest are forgotten beyond that.
COUNTED_MAX = 10_000
_GIVEN_BACK = {attempts.SESSION: "ready_by_disconnect", attempts.RESTART: "ready_by_restart"}


class LaneTube(EngineTube):
    """A space of tubes. `waiters` holds everybody who waits, `lines` the same by lane.

    counters: what was done since the node started, by lane and name.
    """

    __slots__ = ("counters", "lane_field", "lines", "woken")

    def __init__(self, engine: EnginePort, row: Row, space: Space, driver: Driver) -> None:
        super().__init__(engine, row, space, driver)
        self.lines: dict[str, OrderedDict[int, Waiter]] = {}
        self.woken: dict[str, None] = {}
        self.counters: OrderedDict[str, dict[str, int]] = OrderedDict()
        self.lane_field = driver.lane_field

    def count(self, lane: str, counter: str, number: int = 1) -> None:
        counters = self.counters.get(lane)
        if counters is None:
            counters = self.counters[lane] = {}
            if len(self.counters) > COUNTED_MAX:
                self._forget_counters()
        counters[counter] = counters.get(counter, 0) + number

    def _forget_counters(self) -> None:
        """Names of tubes are the clients' to choose, memory is not."""
        for lane in self.counters:
            if lane not in self.lines and not self.driver.holds(lane):
                del self.counters[lane]
                return

    def take_from(self, client: EngineClient, ticket: Any, lane: str, wait_us: int) -> Any:
        """The next ready task of a lane, or wait for one `wait_us`; EMPTY, PENDING."""
        found = self.take_now(client, lane)
        if found is not None:
            return found
        if not wait_us:
            self.count(lane, "take_timeout")
            return EMPTY
        if not self.waiters:
            # A change of roles answers everybody without asking for lanes.
            self.lines.clear()
        waiter = self.engine.park(client, ticket, self, wait_us, False)
        waiter.lane = lane
        self.waiters[waiter.id] = waiter
        line = self.lines.get(lane)
        if line is None:
            line = self.lines[lane] = OrderedDict()
        line[waiter.id] = waiter
        return PENDING

    def take_now(self, client: EngineClient, lane: str) -> Any:
        """What the client is told of the task it got, None if nothing is ready."""
        engine, driver = self.engine, self.driver
        while (row := driver.take_from(lane, engine.now)) is not None and row[1] != "t":
            expiry.expire(self, row[0])
            if self.space.rows.get(row[0]) == row:
                raise failure(f"driver {self.type} offers task {row[0]} and does not expire it")
        if row is None:
            return None
        shown = driver.present(row)
        self.own(row[0], client, engine.sessions.of(client))
        engine.commit(KIND_TAKE, client.session)
        self.calls["take"] += 1
        self.count(lane, "take")
        if self.callback is not None:
            self.notify(row, "take")
        return shown

    def cancel(self, waiter: Waiter) -> None:
        super().cancel(waiter)
        lane = waiter.lane
        if lane is None:
            return
        self.leave(lane, waiter.id)
        if waiter.deadline is not None and waiter.deadline <= self.engine.now:
            self.count(lane, "take_timeout")

    def leave(self, lane: str, waiter_id: int) -> None:
        line = self.lines.get(lane)
        if line is not None:
            line.pop(waiter_id, None)
            if not line:
                del self.lines[lane]

    # -- events ----------------------------------------------------------------------------------

    def give_back(
        self, task_id: int, opts: dict[str, Any] | None, reason: str = attempts.RELEASED
    ) -> Row:
        row = super().give_back(task_id, opts, reason)
        counter = _GIVEN_BACK.get(reason)
        if counter is not None:
            self.count(row[self.lane_field], counter)
        return row

    def tell(self, row: Row, event: str) -> None:
        if event.startswith("ttl"):
            self.count(row[self.lane_field], "ttl.total" if event == "ttl" else event)
        if self.callback is not None:
            self.notify(row, event)
        self._wake(row[self.lane_field])

    def tell_put(self, row: Row) -> None:
        if self.callback is not None:
            self.notify(row, "put")
        self._wake(row[self.lane_field])

    def _wake(self, lane: str) -> None:
        if lane in self.lines:
            self.woken[lane] = None
            self.engine.woken.append(self)

    def truncate(self, client: EngineClient) -> _Sentinel:
        outcome = super().truncate(client)
        self.engine.woken.append(self)
        return outcome

    def serve(self) -> None:
        """Serve the lanes that were woken, each strictly in order of arrival."""
        if not self.woken:
            # All of it was woken: takes go on that were paused.
            self.woken.update(dict.fromkeys(self.lines))
        while self.woken:
            lane = next(iter(self.woken))
            del self.woken[lane]
            line = self.lines.get(lane)
            while line:
                waiter = next(iter(line.values()))
                if waiter.id not in self.waiters:
                    # Answered with all others, at a change of roles.
                    self.leave(lane, waiter.id)
                    continue
                try:
                    outcome = self.take_now(waiter.client, lane)
                except Exception as error:
                    outcome = waiting.failed(self, error)
                if outcome is None:
                    break
                del self.waiters[waiter.id]
                self.leave(lane, waiter.id)
                self.engine.unpark(waiter)
                waiter.client.deliver(waiter.ticket, outcome)
