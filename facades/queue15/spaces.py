"""The queue API of the Tarantool 1.5 era over spaces of type queue15.

Every call names a space by its number N, the engine's tube `spaceN`, and a tube in it or a task by
its 32 hex digits. Arguments are as they came, checked here. What a call answers: `Raw` (a task's
reply tuple), a list (one flat tuple), a number, text, EMPTY or PENDING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.errors import ER_NO_SUCH_SPACE, QueueError, failure
from tandemq.model.raw import Raw
from tandemq.model.record import (
    KIND_ACK,
    KIND_BURY,
    KIND_DELETE,
    KIND_KICK,
    KIND_OTHER,
    KIND_PUT,
    KIND_RELEASE,
    KIND_TOUCH,
    KIND_TRUNCATE,
)
from tandemq.model.units import SECOND_US
from tandemq_server.engine import admin
from tandemq_server.engine.system_spaces import TAKEN_CONN, TAKEN_SESSION
from tandemq_server.facades.queue15 import arguments
from tandemq_server.facades.queue15 import tasks as q
from tandemq_server.facades.queue15.tube import SpaceTube

if TYPE_CHECKING:
    from tandemq_server.engine.clients import EngineClient
    from tandemq_server.engine.engine import Engine
    from tandemq_server.spaces.space import Row

PREFIX = "space"
STATUSES = (("ready", "r"), ("delayed", "~"), ("taken", "t"), ("buried", "!"), ("done", q.DONE))


def space_name(number: int) -> str:
    """The engine's tube that is the space of that number."""
    return f"{PREFIX}{number}"


def named(space: Any) -> str | None:
    """What the tube is called that a call means by this space, whether or not there is one."""
    number = arguments.number(space)
    if number is None:
        return space if type(space) is str else None
    return space_name(int(number)) if number == int(number) else str(number)


def find_space(engine: Engine, space: Any) -> SpaceTube:
    """A space by number, as number or text, or by the name of the tube that it is."""
    name = named(space)
    if name is None or (name == space and name not in engine.tubes):
        raise arguments.no_space()
    tube = engine.tubes.get(name)
    if tube is None:
        raise QueueError(
            ER_NO_SUCH_SPACE,
            f"Space {space} does not exist: declare a tube {name} of type queue15, or call "
            "queue15.create_space",
        )
    if not isinstance(tube, SpaceTube):
        raise failure(
            f"Tube {name} is not a queue15 space: its calls are queue.tube.{name}:put and so on"
        )
    return tube


def create_space(engine: Engine, number: Any, opts: Any) -> dict[str, Any]:
    """Declare a space: `create_tube` with the name that belongs to the number."""
    found = arguments.number(number)
    if found is None or found != int(found) or found < 0:
        raise failure(f"Invalid space: {number} (expected a number, 0 or more)")
    return admin.describe(admin.create_tube(engine, space_name(int(found)), "queue15", opts))


class Space15:
    """One space, as one client's call sees it."""

    __slots__ = ("client", "driver", "engine", "tube")

    def __init__(self, engine: Engine, client: EngineClient, space: Any) -> None:
        self.engine = engine
        self.client = client
        self.tube = find_space(engine, space)
        self.driver = self.tube.tasks

    def _done(self, row: Row, kind: int, call: str, counter: str, show: Row | None = None) -> Raw:
        """Commit, count, tell; the reply of a call that changed one task."""
        tube = self.tube
        shown = self.driver.present(row if show is None else show)
        self.engine.commit(kind, self.client.session)
        tube.count(row[q.TUBE], counter)
        tube.calls[call] = tube.calls.get(call, 0) + 1
        tube.tell(row, "delete" if row[q.STATUS] == "-" else call)
        return shown

    # -- producers -------------------------------------------------------------------------------

    def put(self, values: list[Any], data: bytes, urgent: bool = False) -> Raw:
        """values: tube, delay, ttl, ttr, pri; data: the task's fields as a MessagePack array."""
        return self._insert(*self._wanted(values), data, urgent)

    def put_unique(self, values: list[Any], data: bytes) -> Raw:
        """The task that is there already with this first field, or a new one."""
        first = q.first_field(data)
        if first is None:
            raise failure("Can not put unique task without data")
        lane, times, pri = self._wanted(values)
        row = self.driver.same(lane, first, times[0] > 0)
        if row is not None:
            return self.driver.present(row)
        return self._insert(lane, times, pri, data, False)

    def _wanted(self, values: list[Any]) -> tuple[str, tuple[int, int, int], int]:
        tube, delay, ttl, ttr, pri = values
        micro = arguments.microseconds
        times = (micro("delay", delay), micro("ttl", ttl), micro("ttr", ttr))
        return arguments.tube_name(tube), times, arguments.priority(pri)

    def _insert(
        self, lane: str, times: tuple[int, int, int], pri: int, data: bytes, urgent: bool
    ) -> Raw:
        engine, tube = self.engine, self.tube
        ident = engine.sessions.new_uuid().hex()
        # Not the driver itself: puts may be paused.
        row = tube.driver.add(lane, ident, data, times, pri, urgent, engine.now)
        shown = self.driver.present(row)
        engine.commit(KIND_PUT, self.client.session)
        tube.count(lane, "urgent" if urgent else "put")
        tube.calls["put"] += 1
        tube.tell_put(row)
        return shown

    # -- consumers -------------------------------------------------------------------------------

    def take(self, ticket: Any, tube: Any, timeout: Any) -> Any:
        wait_us = arguments.timeout_us(timeout)
        return self.tube.take_from(self.client, ticket, arguments.tube_name(tube), wait_us)

    def _found(self, ident: Any) -> Row:
        if type(ident) is bytes:
            ident = ident.decode("utf-8", "surrogateescape")
        row = self.driver.find(ident) if type(ident) is str else None
        if row is None:
            raise failure("Task not found")
        return row

    def _mine(self, ident: Any, what: str) -> Row:
        """A task this session holds: existence first, then status, then owner."""
        row = self._found(ident)
        if row[q.STATUS] != "t":
            raise failure("Task is not taken")
        owner = self.tube.taken.rows.get((self.tube.id, row[0]))
        if owner is None or owner[TAKEN_SESSION] != self.client.session:
            raise failure(f"Only consumer that took the task can it {what}")
        return row

    def ack(self, ident: Any) -> Raw:
        row = self._mine(ident, "ack")
        gone = self.driver.delete(row[0], self.engine.now)
        self.tube.taken.disown(self.tube.id, row[0])
        self.tube.done += 1
        return self._done(gone, KIND_ACK, "ack", "ack", row)

    def release(self, ident: Any, delay: Any = None, ttl: Any = None) -> Raw:
        """Ready again, or after `delay` seconds; a new `ttl` counts from now."""
        delay_us = arguments.optional_microseconds("delay", delay)
        ttl_us = arguments.optional_microseconds("ttl", ttl)
        row = self._mine(ident, "release")
        row = self.driver.give_back(row, delay_us, ttl_us, self.engine.now)
        self.tube.taken.disown(self.tube.id, row[0])
        return self._done(row, KIND_RELEASE, "release", "release")

    def requeue(self, ident: Any) -> Raw:
        row = self.driver.requeue(self._mine(ident, "requeue"))
        self.tube.taken.disown(self.tube.id, row[0])
        return self._done(row, KIND_RELEASE, "release", "requeue")

    def bury(self, ident: Any) -> Raw:
        row = self._mine(ident, "bury")
        row = self.driver.bury(row[0], self.engine.now)
        self.tube.taken.disown(self.tube.id, row[0])
        return self._done(row, KIND_BURY, "bury", "bury")

    def done(self, ident: Any, data: bytes) -> Raw:
        """Executed, and kept until its ttl with new data."""
        row = self.driver.finish(self._mine(ident, "done"), data)
        self.tube.taken.disown(self.tube.id, row[0])
        return self._done(row, KIND_OTHER, "done", "done")

    def touch(self, ident: Any) -> Raw:
        row = self.driver.run_longer(self._mine(ident, "touch"), self.engine.now)
        return self._done(row, KIND_TOUCH, "touch", "touch")

    # -- everybody -------------------------------------------------------------------------------

    def dig(self, ident: Any) -> Raw:
        row = self._found(ident)
        if row[q.STATUS] != "!":
            raise failure("Task is not buried")
        return self._done(self.driver.dig(row), KIND_KICK, "kick", "dig")

    def kick(self, tube: Any, count: Any = None) -> int:
        """Dig up to `count` buried tasks, oldest first; how many it was."""
        lane = arguments.tube_name(tube)
        wanted = 1 if count is None else max(0, int(arguments.compared("count", count)))
        rows = self.driver.kick_from(lane, wanted)
        if rows:
            self.engine.commit(KIND_KICK, self.client.session)
            self.tube.count(lane, "dig", len(rows))
            self.tube.calls["kick"] += len(rows)
            for row in rows:
                self.tube.tell(row, "kick")
        return len(rows)

    def delete(self, ident: Any) -> Raw:
        row = self._found(ident)
        gone = self.driver.delete(row[0], self.engine.now)
        self.tube.taken.disown(self.tube.id, row[0])
        self.tube.done += 1
        return self._done(gone, KIND_DELETE, "delete", "delete", row)

    def truncate(self, tube: Any) -> int:
        """Remove every task of a tube; how many it was."""
        lane = arguments.tube_name(tube)
        for task_id in self.driver.index.ids(lane):
            self.tube.taken.disown(self.tube.id, task_id)
        removed = self.driver.remove_all(lane)
        self.engine.commit(KIND_TRUNCATE, self.client.session)
        return removed

    def peek(self, ident: Any) -> Raw:
        row = self._found(ident)
        self.tube.count(row[q.TUBE], "peek")
        return self.driver.present(row)

    def meta(self, ident: Any) -> list[Any]:
        """Thirteen fields, see docs/compatibility-queue15.md."""
        row = self._found(ident)
        self.tube.count(row[q.TUBE], "meta")
        owner = self.tube.taken.rows.get((self.tube.id, row[0]))
        opts = self.tube.opts
        raw = opts["meta_pri"] == "raw"
        pri = row[q.PRI] if raw else 128 - row[q.PRI] + self.driver.middle
        unit = SECOND_US if opts.get("meta_times") == "seconds" else 1
        return [
            row[q.ID],
            row[q.TUBE],
            q.STATUS_NAMES[row[q.STATUS]],
            row[q.EVENT] // unit,
            str(q.ipri(row)),
            str(pri),
            0 if owner is None else owner[TAKEN_CONN],
            row[q.CREATED] // unit,
            _seconds(row[q.TTL]),
            _seconds(row[q.TTR]),
            row[q.CBURY],
            row[q.CTAKEN],
            self.engine.now // unit,
        ]

    def statistics(self, tube: Any = None) -> list[str]:
        counters = self.tube.counters
        if tube is None:
            names = sorted(counters.keys() | self.driver.index.lanes.keys())
        else:
            lane = arguments.tube_name(tube)
            names = [lane] if lane in counters or self.driver.holds(lane) else []
        return [part for name in names for part in self._statistics(name)]

    def _statistics(self, lane: str) -> list[str]:
        start = f"{self.tube.name}.{lane}."
        flat: list[str] = []
        for counter, value in self.tube.counters.get(lane, {}).items():
            flat += (start + counter, str(value))
        counts = self.driver.index.counts(lane)
        flat += (f"{start}tasks.total", str(sum(counts.values())))
        for name, status in STATUSES:
            flat += (f"{start}tasks.{name}", str(counts[status]))
        return flat


def statistics(
    engine: Engine, client: EngineClient, space: Any = None, tube: Any = None
) -> list[str]:
    """Names and values alternating: of one tube, of one space, of everything."""
    if space is not None:
        return Space15(engine, client, space).statistics(tube)
    if tube is not None:
        raise arguments.no_space()
    flat: list[str] = []
    for name in sorted(engine.tubes):
        if isinstance(engine.tubes[name], SpaceTube):
            flat += Space15(engine, client, name).statistics()
    return flat


def _seconds(micro: int) -> int | float:
    """Whole seconds as an integer, as ever; a fraction is shown rather than lost."""
    whole, rest = divmod(micro, SECOND_US)
    return micro / SECOND_US if rest else whole
