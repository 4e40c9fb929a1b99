"""Calls of xqueue on a tube of records: argument rules, ownership, futures, takes by tube.

All else is the engine's as for any tube. Behaviour, texts: docs/compatibility-xqueue.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar

from tandemq.model.errors import failure
from tandemq.model.record import (
    KIND_ACK,
    KIND_BURY,
    KIND_DELETE,
    KIND_PUT,
    KIND_RELEASE,
    KIND_TAKE,
    KIND_TOUCH,
)
from tandemq.model.task import NEVER_US
from tandemq_server.engine import expiry, pause, waiting
from tandemq_server.engine.clients import EMPTY, PENDING, EngineClient, Values, Waiter, _Sentinel
from tandemq_server.engine.pause import PAUSED_TAKES
from tandemq_server.engine.ports import EnginePort, LayoutPort
from tandemq_server.engine.tube import EngineTube
from tandemq_server.facades.xqueue import digging
from tandemq_server.facades.xqueue.arguments import increment_us, new_key, options, statistics, us
from tandemq_server.facades.xqueue.layout import RecordLayout
from tandemq_server.facades.xqueue.record import EXPIRES, key_text
from tandemq_server.facades.xqueue.records import Records
from tandemq_server.spaces.space import Row, Space


class RecordTube(EngineTube):
    """A tube of records.

    waiters: all takes that wait; unscoped, scoped: the same, for any tube and by tube.
    futures: whoever waits for a record to be finished, by its key.
    """

    keeps_notes: ClassVar[bool] = False
    __slots__ = (
        "futures",
        "generator",
        "records",
        "scoped",
        "shown_as",
        "strict",
        "task",
        "unscoped",
    )

    records: Records

    def __init__(self, engine: EnginePort, row: Row, space: Space, driver: Any) -> None:
        super().__init__(engine, row, space, driver)
        self.records = driver
        self.futures: dict[Any, OrderedDict[int, Waiter]] = {}
        self.scoped: dict[str, OrderedDict[int, Waiter]] = {}
        # Without a field for it nobody waits for a tube's records, and the two are the same.
        self.unscoped = self.waiters if driver.layout.tube is None else OrderedDict()
        self.strict = self.opts.get("compat") == "strict"
        view, table = driver.layout.view, driver.layout.table
        self.task: Callable[[Row], Any] = view if driver.features["retval"] == "tuple" else table
        self.shown_as: Callable[[Row], Any] = view if self.strict else self.task
        self.generator: str = driver.features["id"]

    # -- shapes ----------------------------------------------------------------------------------
    # `task` is a record as put, take, wait and kill show it; `shown_as` is what other calls answer:
    # the same, where `strict` does not ask for the tuple.

    def nothing(self, row: Row) -> Any:
        return EMPTY if self.strict else Values((self.shown_as(row),))

    # -- put and take ----------------------------------------------------------------------------

    def put_record(self, client: EngineClient, ticket: Any, task: Any, opts: Any = None) -> Any:
        if type(task) is not dict:
            task = self._no_map(task)
        delay = ttl = wait = None
        if opts:
            opts = options(opts)
            delay, ttl = self.times(opts)
            wait = us("opts.wait", opts.get("wait"))
            if wait is not None and delay is not None:
                raise failure(
                    "Are you crazy? Call of :put({...}, { wait = <>, delay = <> }) looks weird"
                )
        engine, records = self.engine, self.records
        if self.driver is not self.inner:
            pause.check_puts(self)
        if records.time64:
            key = records.next_key(engine.now)
        else:
            key = new_key(engine, records, task)
        row = records.add(key, task, delay, ttl, engine.now)
        self.calls["put"] += 1
        engine.commit(KIND_PUT, client.session)
        if self.callback is not None:
            self.notify(row, "put")
        if self.waiters and row[1] == "r":
            engine.woken.append(self)
        if wait is None or wait <= 0:
            return Values((self.task(row),))
        return self._await(client, ticket, row, wait)

    def _no_map(self, task: Any) -> dict[str, Any]:
        """An empty map as some connectors send it; nothing else will do."""
        if type(task) is not list:
            raise failure("Wrong argument to put. Expected table or tuple")
        if not task:
            return {}
        raise failure(
            "Primary key is mandatory"
            if self.generator == "required"
            else "Task from array creation is not implemented yet"
        )

    def _paused(self, what: int) -> bool:
        row = self.engine.pauses.space.rows.get(self.id)
        return row is not None and bool(row[what])

    def times(self, opts: dict[str, Any]) -> tuple[int | None, int | None]:
        """Delay and ttl in µs, if these features are on."""
        if not opts:
            return None, None
        features = self.records.features
        delay, ttl = us("delay", opts.get("delay")), us("ttl", opts.get("ttl"))
        if delay is not None and "delayed" not in features:
            raise failure("Feature delayed is not enabled")
        if ttl is not None and "ttl" not in features:
            raise failure("Feature ttl is not enabled")
        if delay is not None and ttl is not None:
            raise failure("Features ttl and delay are mutually exclusive")
        return delay, ttl

    def take_record(
        self, client: EngineClient, ticket: Any, timeout: Any = 0, opts: Any = None
    ) -> Any:
        if type(timeout) is dict:
            opts, timeout = timeout, timeout.get("timeout", 0)
        wait = us("timeout", timeout)
        if wait is None or wait < 0:
            raise failure("timeout required")
        ttr = tube = None
        if opts:
            opts = options(opts)
            ttr, tube = us("ttr", opts.get("ttr")), opts.get("tube")
            if ttr is not None and "ttr" not in self.records.features:
                raise failure("Feature ttr is not enabled")
            if tube is not None:
                if self.records.layout.tube is None:
                    raise failure("Feature tube is not enabled")
                if type(tube) is not str:
                    raise failure("opts.tube must be a string")
        if self.records.index.ready.count:
            row = self._take(client, tube, ttr)
            if row is not None:
                return Values((self.task(row),))
        if not wait:
            return EMPTY
        waiter = self.engine.park(client, ticket, self, wait, False)
        waiter.ttr = ttr
        self.waiters[waiter.id] = waiter
        if tube is None:
            self.unscoped[waiter.id] = waiter
        else:
            waiter.opts = {"tube": tube}
            self.scoped.setdefault(tube, OrderedDict())[waiter.id] = waiter
        return PENDING

    def _take(self, client: EngineClient, tube: str | None, ttr: int | None) -> Row | None:
        engine, records = self.engine, self.records
        if self.driver is not self.inner and self._paused(PAUSED_TAKES):
            return None
        row = records.take_one(tube, ttr, engine.now)
        if row is None:
            return None
        if row[1] != "t":
            expiry.expire(self, row[0])
            return self._take(client, tube, ttr)
        session = client.session
        if session is None:
            session = engine.sessions.of(client)
        self.own(row[0], client, session)
        self.calls["take"] += 1
        engine.commit(KIND_TAKE, session)
        if self.callback is not None:
            self.notify(row, "take")
        return row

    def serve(self) -> None:
        """Give what is ready to who waits: takers of its tube first, then those of any."""
        if self.scoped:
            for tube in list(self.scoped):
                self._serve(self.scoped[tube], tube)
                if not self.scoped[tube]:
                    del self.scoped[tube]
        self._serve(self.unscoped, None)

    def _serve(self, line: OrderedDict[int, Waiter], tube: str | None) -> None:
        ready, waiters = self.records.index.ready, self.waiters
        while line and ready.count:
            waiter = next(iter(line.values()))
            if line is not waiters and waiter.id not in waiters:
                # Answered with all others, at a change of roles.
                del line[waiter.id]
                continue
            try:
                row = self._take(waiter.client, tube, waiter.ttr)
                if row is None:
                    return
                outcome: Any = Values((self.task(row),))
            except Exception as error:
                outcome = waiting.failed(self, error)
            del waiters[waiter.id]
            if line is not waiters:
                del line[waiter.id]
            self.engine.unpark(waiter)
            waiter.client.deliver(waiter.ticket, outcome)

    # -- the end of a task -----------------------------------------------------------------------

    def found(self, argument: Any) -> Row:
        key = self.records.layout.key_of(argument)
        row: Row | None = self.space.rows.get(key)
        if row is None:
            raise failure(f"Task {{{key_text(key)}}} was not found")
        return row

    def _owned(self, client: EngineClient, argument: Any) -> Row:
        row = self.found(argument)
        owner = self.taken.rows.get((self.id, row[0]))
        if owner is None:
            raise failure(f"Task {key_text(row[0])} not taken by any")
        if owner[3] != client.session:
            raise failure(f"Task {key_text(row[0])} taken by {owner[2]}. Not you ({client.id})")
        return row

    def ack_record(self, client: EngineClient, argument: Any, attr: Any = None) -> Any:
        records, taken, session = self.records, self.taken, client.session
        layout = records.layout
        bare = type(argument) is int and not layout.text_keys
        key = argument if bare else layout.key_of(argument)
        owner = taken.rows.get((self.id, key))
        if owner is None or owner[3] != session:
            self._owned(client, argument)
        if not attr and records.removes:
            row, gone = self.space.delete(key), True
        else:
            row, gone = self._finish(key, options(attr))
        taken.disown(self.id, key)
        self.calls["ack"] += 1
        self.done += 1
        self.engine.commit(KIND_ACK, session)
        if self.callback is not None:
            self.notify(row, "delete" if gone else "ack")
        if key in self.futures:
            self._resolve(row, True)
        return Values((self.shown_as(row),))

    def _finish(self, key: Any, attr: dict[str, Any]) -> tuple[Row, bool]:
        delay = us("delay", attr.get("delay"))
        if delay is not None and "zombie" not in self.records.features:
            raise failure("Feature zombie is not enabled")
        return self.records.finish(key, delay, self.engine.now, attr.get("update"))

    def release_record(self, client: EngineClient, argument: Any, attr: Any = None) -> Any:
        row = self._owned(client, argument)
        attr = options(attr)
        delay, ttl = self.times(attr)
        key = row[0]
        left = 0 if delay is None else row[EXPIRES]
        row = self.records.ready(key, delay, ttl, left, self.engine.now, attr.get("update"))
        self.taken.disown(self.id, key)
        self.calls["release"] += 1
        self.engine.commit(KIND_RELEASE, client.session)
        self.tell(row, "release")
        return Values((self.shown_as(row),))

    def bury_record(self, client: EngineClient, argument: Any, attr: Any = None) -> Any:
        row = self._owned(client, argument)
        key = row[0]
        row = self.records.set_aside(key, options(attr).get("update"))
        self.taken.disown(self.id, key)
        self.calls["bury"] += 1
        self.engine.commit(KIND_BURY, client.session)
        self.tell(row, "bury")
        self._resolve(row, False)
        return self.nothing(row)

    def touch_record(self, client: EngineClient, argument: Any, attr: Any = None) -> Any:
        row = self.found(argument)
        increment = increment_us(options(attr).get("increment"))
        if row[1] == "t":
            self._owned(client, argument)
        row = self.records.more_time(row[0], increment)
        self.calls["touch"] += 1
        self.engine.commit(KIND_TOUCH, client.session)
        self.tell(row, "touch")
        return Values((self.shown_as(row),))

    def dig(self, client: EngineClient, argument: Any, attr: Any = None) -> Any:
        """kick as well: see digging.py."""
        return digging.dig(self, client, argument, attr)

    def kill(self, client: EngineClient, argument: Any) -> Any:
        key = self.records.layout.key_of(argument)
        if key not in self.space.rows:
            raise failure(f"Task by {key_text(key)} not found to kill")
        gone = self.records.delete(key, self.engine.now)
        row = (key, "!", *gone[2:])
        self.taken.disown(self.id, key)
        self.calls["delete"] += 1
        self.done += 1
        self.engine.commit(KIND_DELETE, client.session)
        self.tell(gone, "delete")
        self._resolve(row, False)
        return Values((self.task(row),))

    def truncate(self, client: EngineClient) -> _Sentinel:
        outcome = super().truncate(client)
        for key in list(self.futures):
            self._answer_futures(key, failure(f"Task {{{key_text(key)}}} was not found"))
        return outcome

    # -- futures ---------------------------------------------------------------------------------

    def wait_record(self, client: EngineClient, ticket: Any, task: Any, timeout: Any = None) -> Any:
        row = self.found(task)
        if row[1] in ("!", "z", "d"):
            done = row[1] != "!" and not self.strict
            return Values((self.task(row), done))
        wait = NEVER_US if timeout is None else us("timeout", timeout)
        assert wait is not None
        if wait <= 0:
            return Values((self.task(row), False))
        if not self.engine.running:
            raise failure("This node is read-only: wait for a task on the node that serves it")
        return self._await(client, ticket, row, wait)

    def _await(self, client: EngineClient, ticket: Any, row: Row, wait: int) -> _Sentinel:
        waiter = self.engine.park(client, ticket, self, wait, False)
        waiter.opts = {"key": row[0], "row": row}
        # Beside the takes, so that a change of roles answers these calls as well.
        self.blocked[waiter.id] = waiter
        self.futures.setdefault(row[0], OrderedDict())[waiter.id] = waiter
        return PENDING

    def _resolve(self, row: Row, processed: bool) -> None:
        if row[0] in self.futures:
            if row[1] == "-":
                row = (row[0], "r", *row[2:])
            self._answer_futures(row[0], Values((self.task(row), processed)))

    def _answer_futures(self, key: Any, outcome: Any) -> None:
        for waiter in self.futures.pop(key).values():
            # Not there: it was answered with all others at a change of roles.
            if self.blocked.pop(waiter.id, None) is not None:
                self.engine.unpark(waiter)
                waiter.client.deliver(waiter.ticket, outcome)

    def layout(self) -> LayoutPort:
        return RecordLayout(self.records)

    def timed_out(self, waiter: Waiter, blocked: bool) -> Any:
        opts = waiter.opts or {}
        if "key" not in opts:
            return EMPTY
        shown = self.task(self.space.rows.get(opts["key"], opts["row"]))
        return Values((shown, False))

    def cancel(self, waiter: Waiter) -> None:
        super().cancel(waiter)
        self.unscoped.pop(waiter.id, None)
        if waiter.opts is None:
            return
        self._leave(self.scoped, waiter.opts.get("tube"), waiter.id)
        self._leave(self.futures, waiter.opts.get("key"), waiter.id)

    def _leave(self, lines: dict[Any, OrderedDict[int, Waiter]], key: Any, waiter_id: int) -> None:
        line = lines.get(key)
        if line is not None:
            line.pop(waiter_id, None)
            if not line:
                del lines[key]

    def tell(self, row: Row, event: str) -> None:
        if self.callback is not None:
            self.notify(row, event)
        if event == "ttl":
            self._resolve(row, False)
        if self.waiters and row[1] == "r":
            self.engine.woken.append(self)

    def stats(self, pretty: Any = None) -> Values:
        return Values((statistics(self.records.index, bool(pretty)),))
