"""The engine: tubes by name, the transaction at hand, timers, and what the rim must write.

Everything that changes goes through `commit`, which turns the trail of one call into one record.
The rim takes the records of a whole event-loop turn at once (`take_records`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from heapq import heappush
from typing import Any

from tandemq.model.bounds import unmeasured_rows
from tandemq.model.errors import failure
from tandemq.model.record import (
    KIND_DELAY,
    KIND_OTHER,
    KIND_TERM,
    KIND_TTL,
    KIND_TTR,
    TERM,
    Record,
    check_record,
)
from tandemq.model.task import NEVER_US
from tandemq.model.terms import Term, plain_term
from tandemq.model.units import MIB
from tandemq_server.drivers.base import Driver
from tandemq_server.engine import (
    catalogue,
    expiry,
    leases,
    lifecycle,
    notes,
    ports,
    room,
    settings,
)
from tandemq_server.engine.clients import EMPTY, EngineClient, Line, Waiter
from tandemq_server.engine.keys import TIMER_KEYS, Keys
from tandemq_server.engine.lookout import Lookout
from tandemq_server.engine.pause import Pauses
from tandemq_server.engine.session_times import TIMER_SESSION
from tandemq_server.engine.sessions import Sessions
from tandemq_server.engine.system_spaces import (
    CatalogueIndex,
    config_space,
    consumers_space,
    grants_space,
    queue_space,
    session_ids_space,
    taken_space,
)
from tandemq_server.engine.tube import Callback, EngineTube
from tandemq_server.engine.usage import Usage, UsageIndex
from tandemq_server.engine.waits import SLACK, Waits
from tandemq_server.spaces.space import IndexShape, Row, Space
from tandemq_server.spaces.store import Store

#: A waiting call that ends at the moment of a timer comes before or after it as if it were one of
#: this kind.
TIMER_WAIT = -1
#: Deadlines handled in one tick, so that a flood of them does not hold up callers.
TICK_MAX = 1000
EVENT_KINDS = {"ttl": KIND_TTL, "ttr": KIND_TTR, "delay": KIND_DELAY}


def _no_functions(reference: str) -> Callable[..., Any]:
    raise failure(f"{reference}: this node loads no functions")


class Engine:
    """One node's queue.

    now: µs of the log's clock, set by the rim before each batch of calls; never runs backwards.
    lsn: of the last record made. records: made since the rim last took them.
    running: whether changing calls are served. woken: tubes whose waiters may be served.
    """

    def __init__(
        self,
        drivers: Mapping[str, type[Driver]],
        new_uuid: Callable[[], bytes],
        report: Callable[..., None],
    ) -> None:
        """`new_uuid()` gives 16 random bytes of a v4 UUID; `report(text)` logs one line, with
        an exception as second argument if there is one.
        """
        self.drivers = dict(drivers)
        self.report = report
        self.now = self.lsn = 0
        #: What puts are told while this node has no memory for them; see `Pauses.fill`.
        self.full = ""
        self.records: list[Record] = []
        self.running = False
        self.woken: list[ports.TubePort] = []
        self.last_delivery = 0
        #: µs nobody led, set before `promote`; the moment up to which leases got them.
        self.frozen_us = self.frozen_until = 0
        #: A call with more ops (or rows of a batch) than this is measured before its commit.
        self.unmeasured = unmeasured_rows(MIB)
        self.ttr_us = 0
        self.ttr_s: float | int = 0
        self.in_replicaset = False
        #: What connectors compare: it moves when a tube comes or goes, see engine/settings.py.
        self.schema_version = settings.SCHEMA_FIRST
        self.tubes: dict[str, EngineTube] = {}
        self.tube_of_space: dict[int, EngineTube] = {}
        self.callbacks: dict[str, Callback] = {}
        #: What a `module:function` of a declaration stands for; the rim provides it.
        self.functions: Callable[[str], Callable[..., Any]] = _no_functions
        self.broken: dict[str, str] = {}
        self.on_tube: Callable[[EngineTube, bool], None] = lambda _tube, _appears: None
        self.on_grants_changed: Callable[[], None] = lambda: None
        self._waiter_id = 0
        self.waits = Waits()
        self.store = Store(self._build_space)
        self.taken = taken_space()
        self.store.add(self.taken)
        self.catalogue = self.store.add(
            queue_space(
                CatalogueIndex(
                    partial(catalogue.appears, self),
                    partial(catalogue.goes, self),
                    changed=partial(catalogue.altered, self),
                )
            )
        )
        self.sessions = Sessions(self, new_uuid)
        config_rows = partial(settings.apply_row, self), partial(settings.forget, self)
        self.config = self.store.add(config_space(CatalogueIndex(*config_rows)))
        self.grants = self.store.add(grants_space(CatalogueIndex(self._grants_in, self._grants_in)))
        self.keys = Keys(self)
        #: Notes on tasks: of logged tubes, of temporary ones.
        counted = UsageIndex(), UsageIndex()
        self.notes = notes.both(self.store, counted)
        self.usage = Usage(self, counted)
        #: Whose puts are counted in the call at hand, see engine/usage.py; None: nobody's.
        self.putter: str | None = None
        #: Tasks that came from other tubes in the call at hand, told of after its commit.
        self.arrived: list[tuple[ports.TubePort, Row]] = []
        #: A number from 0 to 1 by chance; what comes of it is logged, never the asking.
        self.chance: Callable[[], float] = lambda: int.from_bytes(new_uuid()[:6]) / 2**48
        self.pauses = Pauses(self)
        self.lookout = Lookout(self)
        self.store.add(consumers_space())
        self.store.add(session_ids_space())

    # -- transactions ----------------------------------------------------------------------------

    def commit(self, kind: int, session: bytes | None) -> None:
        """What the call changed becomes one record; after an error it can all be taken back."""
        store = self.store
        if ops := store.ops:
            if self.putter is not None:
                self.usage.charge(self.putter)
            if len(ops) > self.unmeasured:
                check_record(ops)
            fresh, lsn = ops[:0], self.lsn + 1
            self.records.append((self.now, kind, session, ops))
            # From here on nothing asks for memory.
            store.ops, self.lsn = fresh, lsn
        store.undo.clear()

    def take_records(self) -> list[Record]:
        records = self.records
        self.records = []
        return records

    def reset(self) -> None:
        """Back to a node that holds nothing, before its state is loaded from elsewhere.

        Only for a node that does not serve: nobody waits here then. Connections and their
        sessions stay; `lsn` is the loader's to set.
        """
        assert not self.running, "a node that serves is not loaded anew"
        for row in list(self.catalogue.rows.values()):
            catalogue.goes(self, row)
        self.store.reset()
        self.broken.clear()
        self.records = []
        self.woken.clear()
        self.ttr_us = self.ttr_s = self.sessions.times.later = 0
        self.in_replicaset, self.schema_version = False, settings.SCHEMA_FIRST
        self.taken.temporary = self.sessions.space.temporary = True
        self.lsn = 0

    def open_term(self, term: Term, frozen_us: int = 0) -> None:
        """A further term of who leads already: pair mode goes solo, or ends being so.

        frozen_us: for how long nobody was served before it, which no lease is charged with.
        """
        self.store.lineage.append(term)
        self.store.ops.append((TERM, *plain_term(term)))
        if frozen_us > 0:
            self.sessions.prolong(frozen_us)
            leases.prolong_tasks(self, frozen_us)
            self.frozen_until = self.now
        self.commit(KIND_TERM, None)

    def promote(
        self, term: Term, ttr: float | None, in_replicaset: bool | None
    ) -> lifecycle.Released:
        """Begin to lead: term record, settings and the release of orphans in one transaction.

        All of it or, after an exception, nothing. Drivers start with `lifecycle.serve`.
        """
        store = self.store
        known = len(store.lineage)
        try:
            store.lineage.append(term)
            store.ops.append((TERM, *plain_term(term)))
            settings.change(self, ttr, in_replicaset)
            return lifecycle.promote(self, KIND_TERM)
        except BaseException:
            del store.lineage[known:]
            store.rollback()
            raise

    # -- spaces and tubes, on whichever road they come -------------------------------------------

    def _build_space(
        self, space_id: int, name: str, driver: str, opts: dict[str, Any], temporary: bool
    ) -> Space:
        """The factory of the store. A type nobody knows keeps its rows and serves no calls."""
        kind = self.drivers.get(driver)
        if kind is not None:
            try:
                return room.measure(kind.create_space(space_id, name, opts, temporary), opts)
            except Exception as error:
                self.broken[name] = f"create_space failed: {type(error).__name__}: {error}"
                self.report(f"tube {name}: driver {driver}: {self.broken[name]}")
        return Space(
            space_id,
            name,
            (("task_id", "unsigned"), ("status", "string")),
            shapes=(IndexShape("task_id", [(0, "unsigned")]),),
            temporary=temporary,
        )

    def tube(self, name: str) -> EngineTube | None:
        return self.tubes.get(name)

    def _grants_in(self, _row: Row) -> None:
        self.on_grants_changed()

    def configure(self, ttr: float | None, in_replicaset: bool | None) -> None:
        """`queue.cfg`, already validated: None keeps what is."""
        settings.configure(self, ttr, in_replicaset)

    # -- ownership -------------------------------------------------------------------------------

    def owns_tasks(self, session: bytes) -> bool:
        return session in self.taken.by_session

    def release_tasks_of(self, session: bytes) -> None:
        """Give back everything a session holds, in one transaction."""
        lifecycle.release_tasks_of(self, session)

    # -- start and stop of serving ---------------------------------------------------------------

    def start(self) -> int:
        """Begin to serve: release what nobody may still claim, start drivers. Tasks released."""
        return lifecycle.start(self)

    def stop(self) -> None:
        """Stop serving: drivers stop, nothing is ticked any more."""
        lifecycle.stop(self)

    def wake_all(self, outcome: Any = EMPTY) -> None:
        """Answer everybody who waits: at shutdown with EMPTY, at a role change with an error."""
        self.lookout.answer_all(outcome)
        for tube in self.tubes.values():
            for waiters in (tube.waiters, tube.blocked):
                while waiters:
                    waiter = self.unpark(waiters.popitem(last=False)[1])
                    waiter.client.deliver(waiter.ticket, outcome)

    # -- waiting ---------------------------------------------------------------------------------

    def park(
        self, client: EngineClient, ticket: Any, tube: Line, wait_us: int, token: bool | str
    ) -> Waiter:
        """A call begins to wait, `wait_us` at most (NEVER_US = for ever)."""
        self._waiter_id += 1
        deadline = None if wait_us >= NEVER_US else self.now + wait_us
        waiter = Waiter(self._waiter_id, client, ticket, tube, deadline, token)
        client.waits[waiter] = None
        if deadline is not None:
            waits = self.waits
            heappush(waits.heap, (deadline, waiter.id, waiter))
            waits.live += 1
        return waiter

    def unpark(self, waiter: Waiter) -> Waiter:
        """A call no longer waits; its tube has already forgotten it."""
        if waiter.client.waits.pop(waiter, waiter) is None and waiter.deadline is not None:
            waits = self.waits
            waits.live -= 1
            if len(waits.heap) > 2 * waits.live + SLACK:
                waits.sweep()
        return waiter

    def wake(self) -> None:
        """Serve the tubes that were woken; called after every call, its reply already made."""
        while self.woken:
            tube = self.woken.pop()
            try:
                tube.serve()
            except Exception as error:
                self.store.rollback()
                self.report(f"tube {tube.name}: {type(error).__name__}: {error}")

    def disconnect(self, client: EngineClient) -> None:
        """A connection is gone: its waiting calls are cancelled before anything else happens."""
        for waiter in list(client.waits):
            waiter.tube.cancel(waiter)
            self.unpark(waiter)
        self.sessions.leave(client)
        self.wake()

    # -- time ------------------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """µs of the next moment `tick` has something to do, None for never."""
        timers = self.store.timers
        waiter = self.waits.first()
        if waiter is None:
            return timers[0][0] if timers else None
        assert waiter.deadline is not None
        return min(waiter.deadline, timers[0][0]) if timers else waiter.deadline

    def tick(self) -> None:
        """Do what is due at `now`, at most TICK_MAX deadlines, in the order of their moments."""
        timers, waits = self.store.timers, self.waits
        now = self.now
        for _ in range(TICK_MAX):
            waiter = waits.first()
            until = now + 1 if waiter is None else waiter.deadline
            assert until is not None
            if waiter and until <= now and (not timers or (until, TIMER_WAIT) < timers[0]):
                if self.woken:
                    # A task that became ready before this moment is still in time for it.
                    self.wake()
                else:
                    self._end_wait(waiter)
                continue
            if not timers or timers[0][0] > now:
                break
            entry = timers[0]
            kind = entry[1]
            if kind == TIMER_SESSION:
                self.sessions.expire(entry[2])
                timers.discard(entry)
            elif kind == TIMER_KEYS:
                self.keys.expire(entry[2])
            else:
                self._expire_task(entry)
        self.wake()

    def _end_wait(self, waiter: Waiter) -> None:
        tube = waiter.tube
        blocked = waiter.id in tube.blocked
        tube.cancel(waiter)
        self.unpark(waiter)
        waiter.client.deliver(waiter.ticket, tube.timed_out(waiter, blocked))

    def _expire_task(self, entry: tuple[Any, ...]) -> None:
        timers = self.store.timers
        tube = self.tube_of_space.get(entry[1])
        try:
            if tube is None:
                raise failure("no tube serves this space")
            before = tube.space.rows.get(entry[2])
            expiry.expire(tube, entry[2])
            # The moment may stay the same: ttl and ttr that end together are two steps.
            if entry in timers and tube.space.rows.get(entry[2]) is before:
                raise failure("the deadline was not handled")
        except Exception as error:
            # A deadline that cannot be handled must not be due for ever.
            self.store.rollback()
            if entry in timers:
                timers.remove(entry)
                self.store.given_up.add(entry)
            self.report(
                f"deadline of task {entry[2]} in space {entry[1]} dropped: "
                f"{type(error).__name__}: {error}"
            )

    def event_kind(self, event: str) -> int:
        # Some drivers say more behind a point: ttl.ready
        return EVENT_KINDS.get(event.partition(".")[0], KIND_OTHER)
