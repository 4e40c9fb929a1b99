"""One tube: argument rules, ownership, statistics, callbacks and waiting around its driver.

Methods return a task row (first field id, second status, last payload), a plain value, or one of
EMPTY, NIL and PENDING. Texts and codes of errors are the spec's (docs/compatibility.md).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from drivers.base import Driver
from engine import arguments
from engine.clients import EMPTY, NIL, PENDING, Client, Delivery, Waiter, _Sentinel
from engine.system_spaces import TAKEN_SESSION, TAKEN_TIME
from model.errors import ER_FIELD_MISSING, QueueError, not_taken, task_not_found
from model.record import (
    KIND_ACK,
    KIND_BURY,
    KIND_DELETE,
    KIND_KICK,
    KIND_PUT,
    KIND_RELEASE,
    KIND_RELEASE_ALL,
    KIND_TAKE,
    KIND_TOUCH,
    KIND_TRUNCATE,
)
from spaces.space import Row, Space

if TYPE_CHECKING:
    from engine.queue import Engine

Callback = Callable[[Row, str], None]
CALLS = ("ack", "bury", "delete", "kick", "put", "release", "take", "touch", "ttl", "ttr", "delay")


class Tube:
    """A named queue.

    calls: what was done since the node started; done: tasks gone for good.
    waiters: parked takes in order of arrival; blocked: parked puts of a full tube, likewise.
    """

    __slots__ = (
        "blocked",
        "callback",
        "calls",
        "done",
        "driver",
        "engine",
        "id",
        "name",
        "normalize",
        "opts",
        "space",
        "taken",
        "type",
        "waiters",
    )

    def __init__(self, engine: Engine, row: Row, space: Space, driver: Driver) -> None:
        self.engine = engine
        self.name: str = row[0]
        self.id: int = row[1]
        self.type: str = row[3]
        self.opts: dict[str, Any] = row[4]
        self.space = space
        self.driver = driver
        #: Custom drivers may keep their rows in another shape than (id, status, ..., payload).
        self.normalize: Callable[[Row], Row] | None = (
            None if type(driver).normalize_task is Driver.normalize_task else driver.normalize_task
        )
        self.taken = engine.taken
        self.calls = dict.fromkeys(CALLS, 0)
        self.done = 0
        self.callback: Callback | None = None
        self.waiters: OrderedDict[int, Waiter] = OrderedDict()
        self.blocked: OrderedDict[int, Waiter] = OrderedDict()

    # -- the hot calls ---------------------------------------------------------------------------

    def put(
        self, client: Client, ticket: Any, data: bytes | None, opts: Any = None
    ) -> Row | _Sentinel:
        """New task from raw MessagePack `data`. EMPTY rows never happen; NIL = no room."""
        engine = self.engine
        if data is None:
            raise self.no_data()
        if opts is not None:
            opts = arguments.put_options(opts)
        driver = self.driver
        if driver.capacity and (self.blocked or len(self.space.rows) >= driver.capacity):
            return self._wait_for_room(client, ticket, data, opts)
        row = driver.put(data, opts, engine.now)
        self.calls["put"] += 1
        engine.commit(KIND_PUT, client.session)
        if self.callback is not None:
            self.notify(row, "put")
        if self.waiters:
            engine.woken.append(self)
        normalize = self.normalize
        return row if normalize is None else normalize(row)

    def take(
        self, client: Client, ticket: Any, timeout: Any = None, token: bool = False
    ) -> Row | _Sentinel:
        """The next ready task, or wait for one: `timeout` seconds, None = for ever."""
        engine = self.engine
        wait_us = arguments.timeout_us(timeout)
        # Whoever waits was served when a task became ready, so what is ready now is free to take.
        row = self.driver.take(engine.now)
        if row is not None:
            return self._taken(client, row, token)
        if not wait_us:
            return EMPTY
        waiter = engine.park(client, ticket, self, wait_us, token)
        self.waiters[waiter.id] = waiter
        return PENDING

    def _taken(self, client: Client, row: Row, token: bool) -> Row:
        """Write down the owner of a task the driver just took, and commit."""
        engine = self.engine
        session = client.session
        if session is None:
            session = engine.sessions.of(client)
        self.own(row[0], client, session)
        self.calls["take"] += 1
        engine.commit(KIND_TAKE, session)
        if self.callback is not None:
            self.notify(row, "take")
        if self.normalize is not None:
            row = self.normalize(row)
        if token:
            return Delivery((row[0], row[1], self.engine.last_delivery, row[-1]))
        return row

    def own(self, task_id: int, client: Client, session: bytes) -> None:
        engine = self.engine
        delivery = engine.last_delivery + 1
        if delivery < engine.now:
            delivery = engine.now
        engine.last_delivery = delivery
        self.taken.own((self.id, task_id, client.id, session, delivery))

    def check_owner(self, client: Client, task_id: int, token: Any) -> None:
        """Raise unless the client's session holds the task (under this very token, if given)."""
        row = self.taken.rows.get((self.id, task_id))
        if row is None or row[TAKEN_SESSION] != client.session:
            raise not_taken()
        if token is not None and token != row[TAKEN_TIME]:
            raise not_taken()

    def ack(self, client: Client, task_id: Any, token: Any = None) -> Row:
        """Finish a task: removed, returned with status done."""
        if type(task_id) is not int or task_id < 0:
            task_id = arguments.task_id(task_id, 2)
        self.check_owner(client, task_id, token)
        if task_id not in self.space.rows:
            raise task_not_found(task_id)
        engine = self.engine
        row = self.driver.delete(task_id, engine.now)
        self.taken.disown(self.id, task_id)
        self.calls["ack"] += 1
        self.done += 1
        engine.commit(KIND_ACK, client.session)
        return self._gone(row, "delete")

    def _gone(self, row: Row, event: str) -> Row:
        """A task left the tube: tell the callback, offer what its absence makes possible."""
        if self.callback is not None:
            self.notify(row, event)
        if self.waiters or self.blocked:
            self.engine.woken.append(self)
        return row if self.normalize is None else self.normalize(row)

    # -- the other calls -------------------------------------------------------------------------

    def release(self, client: Client, task_id: Any, opts: Any = None, token: Any = None) -> Row:
        """Give a taken task back, after `opts.delay` seconds where the driver knows delays."""
        task_id = arguments.task_id(task_id, 2)
        opts = arguments.release_options(opts)
        self.check_owner(client, task_id, token)
        if task_id not in self.space.rows:
            raise task_not_found(task_id)
        row = self.give_back(task_id, opts)
        self.engine.commit(KIND_RELEASE, client.session)
        return self.readied(row, "release")

    def give_back(self, task_id: int, opts: dict[str, Any] | None) -> Row:
        row = self.driver.release(task_id, opts, self.engine.now)
        self.taken.disown(self.id, task_id)
        self.calls["release"] += 1
        return row

    def readied(self, row: Row, event: str) -> Row:
        """A task may have become ready (already committed): callback, consumers."""
        if self.callback is not None:
            self.notify(row, event)
        if self.waiters:
            self.engine.woken.append(self)
        return row if self.normalize is None else self.normalize(row)

    def touch(
        self, client: Client, task_id: Any, delta: Any = None, token: Any = None
    ) -> Row | _Sentinel:
        """More time for a taken task: `delta` seconds; none or less is a no-op."""
        delta_us = arguments.delta_us(delta)
        if not delta_us:
            return EMPTY
        task_id = arguments.task_id(task_id, 2)
        self.check_owner(client, task_id, token)
        row = self.driver.touch(task_id, delta_us, self.engine.now)
        self.calls["touch"] += 1
        self.engine.commit(KIND_TOUCH, client.session)
        return self.readied(row, "touch")

    def peek(self, task_id: Any) -> Row:
        """Look at a task without changing anything."""
        row = self.driver.peek(self._existing(task_id))
        assert row is not None
        return row if self.normalize is None else self.normalize(row)

    def _existing(self, task_id: Any) -> int:
        task_id = arguments.task_id(task_id, 1)
        if task_id not in self.space.rows:
            raise task_not_found(task_id)
        return task_id  # type: ignore[no-any-return]

    def bury(self, client: Client, task_id: Any) -> Row:
        """Set a task aside, whoever holds it; a buried one is returned as it is."""
        task_id = self._existing(task_id)
        row = self.space.rows[task_id]
        if row[1] == "!":
            return row if self.normalize is None else self.normalize(row)
        row = self.driver.bury(task_id, self.engine.now)
        self.taken.disown(self.id, task_id)
        self.calls["bury"] += 1
        self.engine.commit(KIND_BURY, client.session)
        return self.readied(row, "bury")

    def kick(self, client: Client, count: Any = None) -> int:
        """Make up to `count` buried tasks ready; how many it was."""
        rows = self.driver.kick(arguments.kick_count(count), self.engine.now)
        if rows:
            self.calls["kick"] += len(rows)
            self.engine.commit(KIND_KICK, client.session)
            for row in rows:
                self.readied(row, "kick")
        return len(rows)

    def delete(self, client: Client, task_id: Any) -> Row:
        """Remove a task in any state, whoever holds it."""
        task_id = self._existing(task_id)
        row = self.driver.delete(task_id, self.engine.now)
        self.taken.disown(self.id, task_id)
        self.calls["delete"] += 1
        self.done += 1
        self.engine.commit(KIND_DELETE, client.session)
        return self._gone(row, "delete")

    def truncate(self, client: Client) -> _Sentinel:
        """Remove all tasks; ids start at 0 again; owners of what was there own nothing."""
        for key in [key for key in self.taken.rows if key[0] == self.id]:
            self.taken.disown(*key)
        self.driver.truncate()
        self.engine.commit(KIND_TRUNCATE, client.session)
        if self.blocked:
            self.engine.woken.append(self)
        return EMPTY

    def release_all(self, client: Client | None) -> _Sentinel:
        """Give every taken task back, whoever holds it."""
        rows = [self.give_back(row[0], None) for row in list(self.driver.tasks_by_state("t"))]
        if rows:
            self.engine.commit(KIND_RELEASE_ALL, client.session if client else None)
            for row in rows:
                self.readied(row, "release")
        return EMPTY

    # -- waiting ---------------------------------------------------------------------------------

    def _wait_for_room(
        self, client: Client, ticket: Any, data: bytes, opts: dict[str, Any] | None
    ) -> _Sentinel:
        wait_us = arguments.timeout_us((opts or {}).get("timeout", 0))
        if not wait_us:
            return NIL
        self.driver.check_put(opts)
        waiter = self.engine.park(client, ticket, self, wait_us, False)
        waiter.data, waiter.opts = data, opts
        self.blocked[waiter.id] = waiter
        return PENDING

    def serve(self) -> None:
        """Pair what became possible with who waits for it, in order of arrival."""
        engine = self.engine
        driver = self.driver
        while self.blocked and len(self.space.rows) < driver.capacity:
            waiter = engine.unpark(self.blocked.popitem(last=False)[1])
            assert waiter.data is not None
            try:
                row = driver.put(waiter.data, waiter.opts, engine.now)
                self.calls["put"] += 1
                engine.commit(KIND_PUT, waiter.client.session)
            except QueueError as error:
                engine.store.rollback()
                waiter.client.deliver(waiter.ticket, error)
                continue
            if self.callback is not None:
                self.notify(row, "put")
            waiter.client.deliver(
                waiter.ticket, row if self.normalize is None else self.normalize(row)
            )
        while self.waiters:
            taken = driver.take(engine.now)
            if taken is None:
                return
            waiter = engine.unpark(self.waiters.popitem(last=False)[1])
            row = self._taken(waiter.client, taken, waiter.token)
            waiter.client.deliver(waiter.ticket, [row] if waiter.many else row)

    def cancel(self, waiter: Waiter) -> None:
        self.waiters.pop(waiter.id, None)
        self.blocked.pop(waiter.id, None)

    # -- events ----------------------------------------------------------------------------------

    def expire(self, task_id: int) -> None:
        """A deadline of one task is due."""
        engine = self.engine
        for event, row in self.driver.expire(task_id, engine.now):
            if event == "delete":
                self.done += 1
            self.calls[event] = self.calls.get(event, 0) + 1
            self.taken.disown(self.id, task_id)
            if event != "delete":
                engine.commit(engine.event_kind(event), None)
            if row[1] == "-":
                self._gone(row, event)
            else:
                self.readied(row, event)

    def notify(self, row: Row, event: str) -> None:
        """Tell the callback; what it raises is reported and changes nothing."""
        callback = self.callback
        if callback is None:
            return
        try:
            callback(row, event)
        except Exception as error:
            self.engine.report(
                f"on_task_change of tube {self.name} failed on {event}: {type(error).__name__}: {error}"
            )

    def no_data(self) -> QueueError:
        field = (2 if self.space.raw is None else self.space.raw) + 1
        return QueueError(
            ER_FIELD_MISSING, f"Tuple field {field} required by space format is missing"
        )

    def statistics(self) -> dict[str, dict[str, int]]:
        """{tasks: counts by state, calls: what was done since the node started}."""
        tasks = self.driver.counts()
        tasks["done"] = self.done
        tasks["total"] = len(self.space.rows)
        return {"tasks": tasks, "calls": dict(self.calls)}
