"""One tube: argument rules, ownership, statistics, callbacks and waiting around its driver.

Methods return a task row (first field id, second status, last payload), a plain value, or one of
EMPTY, NIL and PENDING. Texts and codes of errors are the spec's (docs/compatibility.md).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from tandemq.model.errors import QueueError, not_taken, task_not_found
from tandemq.model.record import (
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
from tandemq_server.drivers.base import KNOWN_PUT_OPTIONS, Driver
from tandemq_server.engine import arguments, attempts, keys, pause, policy, room, waiting
from tandemq_server.engine.clients import EMPTY, NIL, PENDING, EngineClient, Waiter, _Sentinel
from tandemq_server.engine.expiry import past_overdue
from tandemq_server.engine.system_spaces import TAKEN_SESSION, TAKEN_TIME
from tandemq_server.spaces.space import Row, Space

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort, LayoutPort

Callback = Callable[[Row, str], None]
CALLS = ("ack", "bury", "delete", "kick", "put", "release", "take", "touch", "ttl", "ttr", "delay")


class EngineTube:
    """A named queue.

    calls: what was done since the node started; done: tasks gone for good.
    waiters: parked takes in order of arrival; blocked: parked puts of a full tube, likewise.
    """

    #: Whoever takes a task out of it takes its note along.
    keeps_notes: ClassVar[bool] = True
    __slots__ = (
        "blocked",
        "callback",
        "calls",
        "done",
        "driver",
        "engine",
        "id",
        "inner",
        "name",
        "normalize",
        "notebook",
        "notes",
        "opts",
        "policy",
        "put_options",
        "release_options",
        "room",
        "space",
        "taken",
        "task_options",
        "type",
        "waiters",
    )

    def __init__(self, engine: EnginePort, row: Row, space: Space, driver: Driver) -> None:
        self.engine = engine
        self.name: str = row[0]
        self.id: int = row[1]
        self.type: str = row[3]
        self.opts: dict[str, Any] = row[4]
        self.space = space
        #: What does the work: `driver` is a gate before it while the tube is paused.
        self.inner = driver
        self.driver = driver
        #: Custom drivers may keep their rows in another shape than (id, status, ..., payload).
        self.normalize: Callable[[Row], Row] | None = (
            None if type(driver).normalize_task is Driver.normalize_task else driver.normalize_task
        )
        self.task_options = KNOWN_PUT_OPTIONS | driver.task_options
        self.put_options = self.task_options | keys.KEY_OPTIONS
        self.release_options = self.task_options | attempts.BURY_OPTIONS
        self.policy = policy.of(self.opts)
        self.room = room.of(space, driver, self.opts)
        self.notebook = engine.notes[1 if space.temporary else 0]
        #: What is known of tasks beside their rows; empty in most tubes.
        self.notes = self.notebook.index.of(self.id)
        self.taken = engine.taken
        self.calls = dict.fromkeys(CALLS, 0)
        self.done = 0
        self.callback: Callback | None = None
        self.waiters: OrderedDict[int, Waiter] = OrderedDict()
        self.blocked: OrderedDict[int, Waiter] = OrderedDict()

    # -- the hot calls ---------------------------------------------------------------------------

    def put(
        self, client: EngineClient, ticket: Any, data: bytes | None, opts: Any = None
    ) -> Row | _Sentinel:
        """New task from raw MessagePack `data`. NIL = no room; PENDING = waits for room."""
        engine = self.engine
        if data is None:
            raise self.no_data()
        if opts is not None:
            if type(opts) is not dict or not opts:
                opts = arguments.options(opts, "put")
            elif not self.task_options.issuperset(opts):
                known = arguments.known_options(opts, self.put_options)
                return keys.put(self, client, ticket, data, known)
        driver = self.driver
        if driver.capacity and (
            self.blocked
            or len(self.space.rows) >= driver.capacity
            or (self.room is not None and not room.has(self, 1, len(data)))
        ):
            return room.wait(self, client, ticket, data, opts)
        row = driver.put(data, opts, engine.now)
        shown = row if self.normalize is None else self.normalize(row)
        engine.commit(KIND_PUT, client.session)
        self.calls["put"] += 1
        if self.callback is not None:
            self.notify(row, "put")
        if self.waiters:
            engine.woken.append(self)
        return shown

    def take(
        self, client: EngineClient, ticket: Any, timeout: Any = None, token: bool | str = False
    ) -> Row | _Sentinel:
        """The next ready task, or wait for one: `timeout` seconds, None = for ever."""
        engine = self.engine
        wait_us = arguments.timeout_us(timeout)
        # Whoever waits was served when a task became ready, so what is ready now is free to take.
        row = self.driver.take(engine.now)
        if row is not None and (row[1] == "t" or (row := past_overdue(self, row)) is not None):
            return self.delivered(client, row, token)
        if not wait_us:
            return EMPTY
        waiter = engine.park(client, ticket, self, wait_us, token)
        self.waiters[waiter.id] = waiter
        return PENDING

    def delivered(self, client: EngineClient, row: Row, token: bool | str) -> Row:
        """Write down the owner of a task the driver just took, and commit."""
        engine = self.engine
        shown = row if self.normalize is None else self.normalize(row)
        session = client.session
        if session is None:
            session = engine.sessions.of(client)
        self.own(row[0], client, session)
        self.calls["take"] += 1
        engine.commit(KIND_TAKE, session)
        if self.callback is not None:
            self.notify(row, "take")
        if token:
            return attempts.delivered(self, shown, engine.last_delivery, token)
        return shown

    def own(self, task_id: int, client: EngineClient, session: bytes) -> None:
        engine = self.engine
        delivery = engine.last_delivery + 1
        if delivery < engine.now:
            delivery = engine.now
        engine.last_delivery = delivery
        self.taken.own((self.id, task_id, client.id, session, delivery))

    def check_owner(self, client: EngineClient, task_id: int, token: Any) -> None:
        """Raise unless the client's session holds the task (under this very token, if given)."""
        row = self.taken.rows.get((self.id, task_id))
        if row is None or row[TAKEN_SESSION] != client.session:
            raise not_taken()
        if token is not None and token != row[TAKEN_TIME]:
            raise not_taken()

    def ack(self, client: EngineClient, task_id: Any, token: Any = None) -> Row:
        """Finish a task: removed, returned with status done."""
        if type(task_id) is not int or task_id < 0:
            task_id = arguments.task_id(task_id, 2)
        owner = self.taken.rows.get((self.id, task_id))
        if owner is None or owner[3] != client.session or token is not None:
            self.check_owner(client, task_id, token)
        if task_id not in self.space.rows:
            raise task_not_found(task_id)
        engine = self.engine
        row = self.driver.delete(task_id, engine.now)
        shown = row if self.normalize is None else self.normalize(row)
        self.taken.disown(self.id, task_id)
        if self.notes:
            self.notebook.forget(self.id, task_id)
        self.calls["ack"] += 1
        self.done += 1
        engine.commit(KIND_ACK, client.session)
        if self.callback is not None:
            self.notify(row, "delete")
        if self.waiters or self.blocked:
            engine.woken.append(self)
        return shown

    def tell(self, row: Row, event: str) -> None:
        """A task changed (already committed): the callback, and who waits for what that freed."""
        if self.policy is not None and event in ("release", "ttr"):
            event = attempts.tell(self, row, event)
        if self.callback is not None:
            self.notify(row, event)
        if self.waiters or self.blocked:
            self.engine.woken.append(self)

    def tell_put(self, row: Row) -> None:
        """A task came (already committed): the callback, and who waits for one."""
        if self.callback is not None:
            self.notify(row, "put")
        if self.waiters:
            self.engine.woken.append(self)

    def shown(self, row: Row) -> Row:
        """A row as clients see it; called before the commit, for a custom driver may fail here."""
        return row if self.normalize is None else self.normalize(row)

    # -- the other calls -------------------------------------------------------------------------

    def release(
        self, client: EngineClient, task_id: Any, opts: Any = None, token: Any = None
    ) -> Row:
        """Give a taken task back, after `opts.delay` seconds where the driver knows delays."""
        task_id = arguments.task_id(task_id, 2)
        opts = arguments.task_options(opts, self.release_options, "release")
        reason = attempts.reason_of(self, opts, attempts.RELEASED)
        self.check_owner(client, task_id, token)
        if task_id not in self.space.rows:
            raise task_not_found(task_id)
        row = self.give_back(task_id, opts, reason)
        shown = self.shown(row)
        self.calls["release"] += 1
        self.engine.commit(KIND_RELEASE, client.session)
        self.tell(row, "release")
        return shown

    def give_back(
        self, task_id: int, opts: dict[str, Any] | None, reason: str = attempts.RELEASED
    ) -> Row:
        """The release itself, inside a transaction; its counting and telling are the caller's."""
        if self.policy is not None:
            return attempts.give_back(self, task_id, opts, reason)
        row = self.driver.release(task_id, opts, self.engine.now)
        self.taken.disown(self.id, task_id)
        return row

    def touch(
        self, client: EngineClient, task_id: Any, delta: Any = None, token: Any = None
    ) -> Row | _Sentinel:
        """More time for a taken task: `delta` seconds; none or less is a no-op."""
        delta_us = arguments.delta_us(delta)
        if not delta_us:
            return EMPTY
        task_id = arguments.task_id(task_id, 2)
        self.check_owner(client, task_id, token)
        row = self.driver.touch(task_id, delta_us, self.engine.now)
        shown = self.shown(row)
        self.calls["touch"] += 1
        self.engine.commit(KIND_TOUCH, client.session)
        self.tell(row, "touch")
        return shown

    def peek(self, task_id: Any) -> Row:
        """Look at a task without changing anything."""
        row = self.driver.peek(self._existing(task_id))
        if row is None:
            raise task_not_found(task_id)
        return self.shown(row)

    def _existing(self, task_id: Any) -> int:
        task_id = arguments.task_id(task_id, 1)
        if task_id not in self.space.rows:
            raise task_not_found(task_id)
        return task_id  # type: ignore[no-any-return]

    def bury(self, client: EngineClient, task_id: Any, opts: Any = None, token: Any = None) -> Row:
        """Set a task aside, whoever holds it; with a `token` only its owner may."""
        task_id = self._existing(task_id)
        opts = arguments.task_options(opts, attempts.BURY_OPTIONS, "bury")
        reason = attempts.reason_of(self, opts, attempts.BURIED)
        if token is not None:
            self.check_owner(client, task_id, token)
        row = self.space.rows[task_id]
        if row[1] == "!":
            return self.shown(row)
        if self.policy is not None and row[1] == "t":
            attempts.count(self, task_id, reason)
        row = self.driver.bury(task_id, self.engine.now)
        shown = self.shown(row)
        owner = self.taken.disown(self.id, task_id)
        self.calls["bury"] += 1
        self.engine.commit(KIND_BURY, client.session)
        self.engine.lookout.tell(self, owner, client, "it was buried")
        self.tell(row, "bury")
        return shown

    def kick(self, client: EngineClient, count: Any = None) -> int:
        """Make up to `count` buried tasks ready; how many it was."""
        rows = self.driver.kick(arguments.kick_count(count), self.engine.now)
        if rows:
            for row in rows if self.notes else ():
                self.notebook.begin_anew(self.id, row[0])
            self.calls["kick"] += len(rows)
            self.engine.commit(KIND_KICK, client.session)
            for row in rows:
                self.tell(row, "kick")
        return len(rows)

    def delete(self, client: EngineClient, task_id: Any) -> Row:
        """Remove a task in any state, whoever holds it."""
        task_id = self._existing(task_id)
        row = self.driver.delete(task_id, self.engine.now)
        shown = self.shown(row)
        owner = self.taken.disown(self.id, task_id)
        self.notebook.forget(self.id, task_id)
        self.calls["delete"] += 1
        self.done += 1
        self.engine.commit(KIND_DELETE, client.session)
        self.engine.lookout.tell(self, owner, client, "it was deleted")
        self.tell(row, "delete")
        return shown

    def truncate(self, client: EngineClient) -> _Sentinel:
        """Remove all tasks; ids start at 0 again; owners of what was there own nothing."""
        keys = [key for key in self.taken.rows if key[0] == self.id]
        owners = [self.taken.disown(*key) for key in keys]
        self.driver.truncate()
        self.engine.keys.forget_tube(self)
        self.notebook.forget_tube(self.id)
        self.engine.commit(KIND_TRUNCATE, client.session)
        self.engine.lookout.tell_all(self, owners, client, "its tube was truncated")
        if self.blocked:
            self.engine.woken.append(self)
        return EMPTY

    def release_all(self, client: EngineClient | None) -> _Sentinel:
        """Give every taken task back, whoever holds it."""
        held = list(self.driver.tasks_by_state("t"))
        owners = [self.taken.rows.get((self.id, row[0])) for row in held]
        rows = [self.give_back(row[0], None) for row in held]
        if rows:
            self.calls["release"] += len(rows)
            self.engine.commit(KIND_RELEASE_ALL, client.session if client else None)
            self.engine.lookout.tell_all(self, owners, client, "all tasks were given back")
            for row in rows:
                self.tell(row, "release")
        return EMPTY

    def serve(self) -> None:
        """Something became possible: pair it with who waits for it."""
        waiting.serve(self)

    def timed_out(self, waiter: Waiter, blocked: bool) -> Any:
        """What a call is told whose wait has come to its end; `blocked`: it waited for room."""
        return NIL if blocked else EMPTY

    def layout(self) -> LayoutPort | None:
        """How rows of the same queue elsewhere look; None: as those of the queue module do."""
        return None

    def cancel(self, waiter: Waiter) -> None:
        self.waiters.pop(waiter.id, None)
        self.blocked.pop(waiter.id, None)

    def notify(self, row: Row, event: str) -> None:
        """Tell the callback; what it raises is reported and changes nothing."""
        callback = self.callback
        if callback is None:
            return
        try:
            callback(row, event)
        except Exception as error:
            self.engine.report(
                f"on_task_change of tube {self.name} failed on {event}: "
                f"{type(error).__name__}: {error}"
            )

    def no_data(self) -> QueueError:
        return arguments.field_missing(2 if self.space.raw is None else self.space.raw)

    def statistics(self) -> dict[str, Any]:
        """{tasks: counts by state, calls: done since the start, paused: {puts, takes} if it is}."""
        tasks = self.driver.counts()
        tasks["done"] = self.done
        tasks["total"] = len(self.space.rows)
        found: dict[str, Any] = {"tasks": tasks, "calls": dict(self.calls)}
        if self.driver is not self.inner:
            found["paused"] = pause.state(self)
        return found
