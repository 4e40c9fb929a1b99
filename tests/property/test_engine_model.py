"""The engine and all five drivers against the naive model, step by step, with restarts.

HYPOTHESIS_PROFILE=ci (or CI in the environment) walks 10,000 steps; the default is a short walk.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tandemq.model.errors import QueueError, failure
from tandemq_server.engine import attempts, batches, listing, pause
from tandemq_server.engine.clients import EMPTY, NIL, PENDING
from tandemq_server.engine.finish import finish
from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import EPOCH, Bench, Worker, assert_replica_agrees
from tests.property import naive_model as naive
from tests.property.faults import BROKEN, FAULTS, NEED_TAKEN, OF_MANY, Fault, both

TUBES: dict[str, tuple[Any, ...]] = {
    "fifo": ("fifo", 0),
    "fifottl": ("fifottl", 0),
    "lim": ("limfifottl", 3),
    "utube": ("utube", 0),
    "utubettl": ("utubettl", 0),
    "small": ("fifo", 2),
    "narrow": ("utube", 0, {"capacity_bytes": 9, "overflow": "wait", "max_attempts": 0}),
    "counted": ("utube", 0, {"max_attempts": 2}),
    "strict": ("fifottl", 0, {"max_attempts": 2, "dead_letter": "utubettl"}),
    "patient": (
        "utubettl",
        0,
        {"max_attempts": 3, "retry_delay": 1, "retry_jitter": 0, "dead_letter": "counted"},
    ),
}
#: Walks and steps of each.
LIMITS = {"dev": (25, 30), "ci": (700, 50)}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
EXAMPLES, STEPS = LIMITS.get(PROFILE, LIMITS["dev"])

#: Which tube: by its place among the one or two a walk keeps to.
tubes = st.integers(0, 1)
workers = st.integers(0, 3)
#: Which task: by its place among those there are, or one that is not there.
tasks = st.integers(0, 12)
seconds = st.sampled_from([0, 0, 0.5, 1, 2, 5])
delays = st.sampled_from([0, 0, 1, 3])
options = st.fixed_dictionaries(
    {},
    optional={
        "ttl": st.sampled_from([None, 0, 1, 4]),
        "ttr": st.sampled_from([0, 1, 2]),
        "pri": st.sampled_from([0, 1, 2, 2**64 - 1]),
        "delay": delays,
        "utube": st.sampled_from(["a", "b", "c", 1, "1"]),
        "timeout": st.sampled_from([0, 1, 3]),
    },
)
#: The key of a put: mostly none, for what else could be told apart.
keys = st.sampled_from(
    [{}, {}, {}, {"key": "a"}, {"key": "a", "window": 1}, {"key": "b", "window": 2.5}]
)


def plain(outcome: Any) -> Any:
    """What the engine said, in the model's words."""
    if outcome is PENDING or outcome is EMPTY or outcome is NIL:
        return outcome.name
    if isinstance(outcome, QueueError):
        return "paused" if "are paused until" in outcome.text else outcome.text
    if isinstance(outcome, list):
        return [plain(item) for item in outcome]
    if isinstance(outcome, tuple):
        return (outcome[0], outcome[1], outcome[-1])
    return outcome


class EngineAgainstModel(RuleBasedStateMachine):
    @initialize(
        names=st.one_of(
            st.lists(st.sampled_from(sorted(TUBES)), min_size=1, max_size=2),
            st.sampled_from([["strict", "utubettl"], ["patient", "counted"]]),
        ),
        ttr=st.sampled_from([0, 2]),
        shared=st.booleans(),
    )
    def begin(self, names: list[str], ttr: float, shared: bool) -> None:
        self.names = names
        self.bench = Bench()
        for name, (kind, capacity, *more) in TUBES.items():
            opts = {"capacity": capacity} if capacity else {}
            self.bench.create(name, kind, **opts, **(more[0] if more else {}))
        self.bench.start()
        self.model = naive.Model(TUBES, EPOCH)
        #: What the walk can come to change: its tubes, and where their dead letters go.
        self.within = dict.fromkeys(names)
        for name in names:
            if letters := self.model.tubes[name].dead_letter:
                self.within[letters] = None
        self.ticket = 0
        self.pairs: list[tuple[Worker, naive.Connection]] = []
        self.hire()
        self.cfg(ttr, shared)

    def hire(self) -> None:
        """Four connections, whatever happened to the last ones."""
        while len(self.pairs) < 4:
            worker = self.bench.worker()
            conn = naive.Connection(worker.id)
            self.model.conns.append(conn)
            self.pairs.append((worker, conn))

    def tube(self, which: int) -> tuple[EngineTube, naive.Tube]:
        name = self.names[which % len(self.names)]
        return self.bench.engine.tubes[name], self.model.tubes[name]

    def task(self, name: int, place: int) -> int:
        """The id at a place among the tasks, taken ones first; past the end none's."""
        tube = self.tube(name)[1]
        ids = [t.id for t in sorted(tube.tasks.values(), key=lambda t: (t.status != "t", t.id))]
        return ids[place % len(ids)] if ids and place < 11 else tube.next_id

    def holder(self, who: int, simple: naive.Tube, task_id: int) -> tuple[Worker, naive.Connection]:
        """Whose call it is: mostly his who has the task, or most calls would be refused."""
        task = simple.tasks.get(task_id)
        if task is not None and task.owner is not None and who:
            for pair in self.pairs:
                if pair[1].session is task.owner:
                    return pair
        return self.pairs[who]

    def agree(self, real: tuple[Any, ...], simple: tuple[Any, ...]) -> None:
        """Do it on both sides and compare what callers are told."""
        self.expect(plain(self.bench.call(*real)), simple)
        self.model.serve()

    def expect(self, outcome: Any, simple: tuple[Any, ...]) -> None:
        """Do on the model's side what had this outcome on the other."""
        try:
            expected = simple[0](*simple[1:])
        except naive.Refused as refusal:
            assert isinstance(outcome, str), f"{outcome!r}, not refused with {refusal}"
            assert str(refusal) in outcome or (outcome, str(refusal)) == ("paused", "are paused")
        else:
            assert outcome == expected, f"{outcome!r}, the model says {expected!r}"

    def next_ticket(self) -> int:
        self.ticket += 1
        return self.ticket

    # -- one rule for each call ------------------------------------------------------------------

    @rule(who=workers, name=tubes, opts=options)
    def put(self, who: int, name: int, opts: dict[str, Any]) -> None:
        (tube, simple), (worker, conn) = self.tube(name), self.pairs[who]
        ticket, data = self.next_ticket(), b"%d" % self.ticket
        self.agree(
            (tube.put, worker, ticket, data, opts),
            (self.model.put, conn, simple, ticket, data, opts),
        )

    @rule(who=workers, name=tubes, timeout=st.sampled_from([0, 0, 0, 0.5, 2, None]))
    def take_again(self, who: int, name: int, timeout: float | None) -> None:
        self.take(who, name, timeout)

    @rule(who=workers, name=tubes, opts=options, key=keys)
    def put_again(self, who: int, name: int, opts: dict[str, Any], key: dict[str, Any]) -> None:
        self.put(who, name, opts | key)

    @rule(who=workers, name=tubes, opts=st.lists(st.tuples(options, keys), max_size=5))
    def put_many(self, who: int, name: int, opts: list[tuple[dict[str, Any], ...]]) -> None:
        (tube, simple), (worker, _) = self.tube(name), self.pairs[who]
        items = [(b"many", one | key) for one, key in opts]
        self.agree((batches.put_many, tube, worker, items), (self.model.put_many, simple, items))

    @rule(who=workers, name=tubes, timeout=st.sampled_from([0, 0, 0, 0.5, 2, None]))
    def take(self, who: int, name: int, timeout: float | None) -> None:
        (tube, simple), (worker, conn) = self.tube(name), self.pairs[who]
        ticket = self.next_ticket()
        self.agree(
            (tube.take, worker, ticket, timeout), (self.model.take, conn, simple, ticket, timeout)
        )

    @rule(who=workers, name=tubes, count=st.integers(0, 4), timeout=st.sampled_from([0, 0, 2]))
    def take_many(self, who: int, name: int, count: int, timeout: float) -> None:
        (tube, simple), (worker, conn) = self.tube(name), self.pairs[who]
        ticket = self.next_ticket()
        self.agree(
            (batches.take_many, tube, worker, ticket, count, timeout),
            (self.model.take_many, conn, simple, ticket, count, timeout),
        )

    @rule(who=workers, name=tubes, which=tasks, token=st.sampled_from([None, None, 0, 1]))
    def ack(self, who: int, name: int, which: int, token: int | None) -> None:
        tube, simple = self.tube(name)
        task_id = self.task(name, which)
        worker, conn = self.holder(who, simple, task_id)
        if token is None:
            self.agree((tube.ack, worker, task_id), (self.model.ack, conn, simple, task_id))
            return
        # The right token changes nothing about who may; a stale one is refused.
        expected = (self.model.ack, conn, simple, task_id) if not token else (self.stale,)
        self.agree((tube.ack, worker, task_id, self.fence(tube, task_id) - token), expected)

    def fence(self, tube: EngineTube, task_id: int) -> int:
        """The token of a task's delivery, any number if it is not taken."""
        owner = tube.taken.rows.get((tube.id, task_id))
        return owner[4] if owner else 1

    def stale(self) -> None:
        raise naive.Refused("Task was not taken")

    @rule(who=workers, name=tubes, which=tasks, stale=st.sampled_from([0, 0, 1]))
    def bury_mine(self, who: int, name: int, which: int, stale: int) -> None:
        """With a token a bury is for the owner alone."""
        tube, simple = self.tube(name)
        task_id = self.task(name, which)
        worker, conn = self.holder(who, simple, task_id)
        expected = (self.model.bury_mine, conn, simple, task_id)
        if stale and task_id in simple.tasks:
            expected = (self.stale,)
        self.agree((tube.bury, worker, task_id, None, self.fence(tube, task_id) - stale), expected)

    @rule(
        name=tubes, count=st.sampled_from([None, 0, 1, 2]), to=st.sampled_from([None, None, 0, 1])
    )
    def redrive(self, name: int, count: int | None, to: int | None) -> None:
        """Of one that has dead letters, if there is any: it may be none that the walk keeps to."""
        tubes = [t for t in self.model.tubes.values() if any(x.origin for x in t.tasks.values())]
        simple = tubes[name % len(tubes)] if tubes else self.tube(name)[1]
        tube = self.bench.engine.tubes[simple.name]
        target, simply = (None, None) if to is None else self.tube(to)
        real = (attempts.redrive, tube, self.pairs[0][0], count, target and target.name)
        self.agree((*real, lambda _name: None), (self.model.redrive, simple, count, simply))

    @rule(who=workers, name=tubes, which=tasks, delay=st.sampled_from([None, 0, 1, 3]))
    def release(self, who: int, name: int, which: int, delay: float | None) -> None:
        tube, simple = self.tube(name)
        task_id = self.task(name, which)
        worker, conn = self.holder(who, simple, task_id)
        self.agree(
            (tube.release, worker, task_id, {"delay": delay}),
            (self.model.release, conn, simple, task_id, delay),
        )

    @rule(who=workers, name=tubes, times=st.integers(1, 3))
    def fail_often(self, who: int, name: int, times: int) -> None:
        """What chance alone rarely does: the same task fails until it is given up."""
        for _ in range(times):
            self.take(who, name, 0)
            self.release(1, name, 0, 0)

    @rule(
        who=workers,
        name=tubes,
        which=st.lists(tasks, max_size=3),
        ack=st.booleans(),
        delay=st.sampled_from([None, 0, 1]),
    )
    def batch(self, who: int, name: int, which: list[int], ack: bool, delay: float | None) -> None:
        (tube, simple), (worker, conn) = self.tube(name), self.pairs[who]
        ids = [self.task(name, place) for place in which]
        real: tuple[Any, ...] = (batches.ack_many, tube, worker, ids)
        if not ack:
            real = (batches.release_many, tube, worker, ids, {"delay": delay})
        self.agree(real, (self.model.batch, conn, simple, ids, ack, delay))

    @rule(who=workers, name=tubes, which=tasks, delta=st.sampled_from([-1, 0, 0.5, 2, 4e9]))
    def touch(self, who: int, name: int, which: int, delta: float) -> None:
        tube, simple = self.tube(name)
        task_id = self.task(name, which)
        worker, conn = self.holder(who, simple, task_id)
        self.agree(
            (tube.touch, worker, task_id, delta), (self.model.touch, conn, simple, task_id, delta)
        )

    @rule(name=tubes, which=tasks, method=st.sampled_from(["bury", "bury", "delete"]))
    def anybody(self, name: int, which: int, method: str) -> None:
        (tube, simple), (worker, _) = self.tube(name), self.pairs[0]
        task_id = self.task(name, which)
        self.agree(
            (getattr(tube, method), worker, task_id), (getattr(self.model, method), simple, task_id)
        )

    @rule(name=tubes, count=st.integers(-1, 4))
    def kick(self, name: int, count: int) -> None:
        tube, simple = self.tube(name)
        self.agree((tube.kick, self.pairs[0][0], count), (self.model.kick, simple, count))

    @rule(name=tubes, which=tasks, method=st.sampled_from(["truncate", "release_all"]))
    def everything(self, name: int, which: int, method: str) -> None:
        if which > 2:
            return
        tube, simple = self.tube(name)
        real = getattr(tube, method)
        self.agree((real, self.pairs[0][0]), (getattr(self.model, method), simple))

    @rule(
        who=workers,
        name=tubes,
        which=tasks,
        puts=st.lists(st.tuples(tubes, options, keys), max_size=3),
    )
    def finish(self, who: int, name: int, which: int, puts: list[tuple[Any, ...]]) -> None:
        tube, simple = self.tube(name)
        task_id = self.task(name, which)
        worker, conn = self.holder(who, simple, task_id)
        both = [(self.tube(into), b"next", opts | key) for into, opts, key in puts]
        self.agree(
            (finish, tube, worker, task_id, [(into[0], *rest) for into, *rest in both]),
            (self.model.finish, conn, simple, task_id, [(into[1], *rest) for into, *rest in both]),
        )

    @rule(
        name=tubes,
        to=tubes,
        action=st.sampled_from(["list", "list", "kick", "delete", "move"]),
        wanted=st.fixed_dictionaries(
            {},
            optional={
                "state": st.sampled_from([None, "ready", "taken", "buried", "delayed"]),
                "utube": st.sampled_from(["a", "1"]),
                "older_than": st.sampled_from([0, 1, 2.5]),
            },
        ),
    )
    def bulk(self, name: int, to: int, action: str, wanted: dict[str, Any]) -> None:
        (tube, simple), (target, simply) = self.tube(name), self.tube(to)
        if not simple.sub:
            wanted.pop("utube", None)
        if not simple.ttl:
            wanted.pop("older_than", None)
        if action == "list":
            found, cursor = listing.page(tube, wanted)
            assert cursor is None
            expected = [task.shown() for task in self.model.matching(simple, wanted)]
            assert [plain(row) for row in found] == expected
            return
        moves = action == "move"
        state = wanted.get("state")
        if (action == "kick" and state in ("ready", "taken")) or (moves and state == "taken"):
            del wanted["state"]
        if (action == "kick" and state == "delayed" and not simple.ttl) or (moves and to == name):
            return
        if moves and tube is target:
            return
        given = wanted | {"limit": 2} | ({"to": target.name} if moves else {})
        worker = self.pairs[0][0]

        def count() -> int:
            counted: int = listing.bulk(tube, worker, action, given, lambda _name: None)["count"]
            return counted

        simple_call = (self.model.bulk, simple, action, wanted, simply if moves else None)
        self.agree((count,), simple_call)

    @rule(name=tubes, what=st.sampled_from([None, "puts", "takes"]), often=st.integers(0, 4))
    def pause(self, name: int, what: str | None, often: int) -> None:
        """Mostly resumed again, or nothing would happen any more."""
        tube, simple = self.tube(name)
        on = not often
        self.agree(
            (pause.change, tube, self.pairs[0][0], what, on), (self.model.pause, simple, what, on)
        )

    # -- time, connections, roles ----------------------------------------------------------------

    @rule(by=seconds)
    def pass_time(self, by: float) -> None:
        self.bench.pass_time(by)
        self.model.advance(int(by * naive.SECOND))
        self.model.serve()

    @rule(who=workers)
    def disconnect(self, who: int) -> None:
        worker, conn = self.pairs.pop(who)
        self.bench.disconnect(worker)
        self.model.disconnect(conn)
        self.model.serve()
        self.same_told(worker, conn)
        self.hire()

    @rule(who=workers, other=st.integers(-1, 5))
    def identify(self, who: int, other: int) -> None:
        worker, conn = self.pairs[who]
        known = sorted(self.model.sessions, key=lambda s: s.uuid or b"")
        session = known[other % len(known)] if other >= 0 and known else None
        uuid = None if session is None else session.uuid
        outcome = self.bench.call(self.bench.engine.sessions.identify, worker, uuid)
        self.model.identify(conn, session)
        self.model.serve()
        assert outcome == worker.session

    @rule(ttr=st.sampled_from([None, 0, 2]), shared=st.sampled_from([None, None, False, True]))
    def cfg(self, ttr: float | None, shared: bool | None) -> None:
        self.bench.call(self.bench.engine.configure, ttr, shared)
        if ttr is not None:
            self.model.ttr = int(ttr * naive.SECOND)
        if shared is not None:
            self.model.in_replicaset = shared

    @rule(gone=st.lists(workers, max_size=2, unique=True))
    def change_of_roles(self, gone: list[int]) -> None:
        engine = self.bench.engine
        engine.stop()
        engine.wake_all(failure("read-only"))
        for tube in self.model.tubes.values():
            for waiter in sorted(tube.waiters, key=lambda w: w.ticket):
                waiter.conn.told.append((waiter.ticket, "read-only"))
            for waiter in tube.blocked:
                waiter.conn.told.append((waiter.ticket, "read-only"))
            tube.waiters, tube.blocked = [], []
        for who in sorted(gone, reverse=True):
            worker, conn = self.pairs.pop(who)
            self.bench.disconnect(worker)
            self.model.conns.remove(conn)
        self.bench.start()
        self.model.begin(everybody_gone=False)
        self.hire()

    @rule(snapshot=st.booleans(), often=st.integers(0, 2))
    def restart(self, snapshot: bool, often: int) -> None:
        if often:
            return
        old = self.bench
        self.bench = other = assert_replica_agrees(old)
        if snapshot:
            self.bench = Bench(now=old.engine.now, name=b"snap", log=[])
            self.bench.log = other.log
            self.bench.engine.store.apply(old.engine.store.catalogue(), lenient=True)
            for space_id, rows in old.engine.store.rows_for_snapshot(3):
                for row in rows:
                    self.bench.engine.store.spaces[space_id].put(row)
        # Names of sessions must not come twice.
        self.bench.uuids = old.uuids
        self.bench.workers = old.workers
        self.bench.start()
        self.pairs = []
        self.model.begin(everybody_gone=True)
        self.hire()

    @rule(
        who=workers,
        name=tubes,
        which=tasks,
        fault=st.sampled_from(FAULTS),
        beside=st.booleans(),
        later=st.booleans(),
    )
    def driver_fails(
        self,
        who: int,
        name: int,
        which: int,
        fault: tuple[str, str],
        beside: bool = False,
        later: bool = False,
    ) -> None:
        """A driver that raises after it changed something: nothing of that stays.

        `beside`: the driver of another tube that the call may reach; `later`: not its first task.
        Where the call never asks for the method, it is a call like any other.
        """
        (tube, simple), (call, method) = self.tube(name), fault
        self.lead_up(call, method, who, name)
        task_id = self.task(name, which)
        worker, conn = self.holder(who, simple, task_id)
        into = self.tube(which)
        letters = tube.policy.dead_letter if tube.policy is not None else None
        failing = tube
        if beside:
            failing = self.bench.engine.tubes[letters] if letters else self.tube(name + 1)[0]
        real, simply = both(call, (tube, worker), (self.model, simple, conn), task_id, into)
        with Fault(failing, method, int(later and call in OF_MANY)) as broken:
            outcome = plain(self.bench.call(broken.during, *real))
        if broken.in_call:
            assert outcome == BROKEN
        else:
            self.expect(outcome, simply)
        if broken.met and not broken.in_call:
            self.one_who_waited_met_it()
        self.model.serve()

    def lead_up(self, call: str, method: str, who: int, name: int) -> None:
        """What chance alone rarely does: there is something for the driver to fail with."""
        simple = self.tube(name)[1]
        tasks = simple.tasks.values()
        if method == "take" and call != method:
            self.take(who, name, None)
        elif call in ("delete", "take") and not tasks:
            self.put(who, name, {})
        elif call == "kick":
            self.put(who, name, {})
            self.anybody(name, 0, "bury")
        elif call in NEED_TAKEN:
            if not any(task.status == "t" for task in tasks):
                self.put(who, name, {})
            if call != method and (first := simple.first()) is not None:
                self.fail_often(who, name, max(0, simple.max_attempts - 1 - first.attempts))
            self.take(who, name, 0)

    def one_who_waited_met_it(self) -> None:
        """A driver that fails in serving fails who is first in line, as if he had just called."""
        tubes = self.model.tubes.values()
        met = [
            (waiting, waiter)
            for worker, _ in self.pairs
            for ticket, outcome in worker.told
            if plain(outcome) == BROKEN
            for tube in tubes
            for waiting in (tube.waiters, tube.blocked)
            for waiter in waiting
            if waiter.ticket == ticket
        ]
        assert len(met) == 1
        waiting, waiter = met[0]
        waiting.remove(waiter)
        waiter.conn.told.append((waiter.ticket, BROKEN))

    # -- after every step ------------------------------------------------------------------------

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "pairs"):
            return
        engine = self.bench.engine
        elsewhere = {engine.tubes[name].space.id for name in TUBES.keys() - self.within.keys()}
        for space in engine.store.spaces.values():
            if space.id not in elsewhere:
                space.check()
        for worker, conn in self.pairs:
            self.same_told(worker, conn)
            assert (worker.session is None) == (conn.session is None)
            if conn.session is not None:
                if conn.session.uuid is None:
                    conn.session.uuid = worker.session
                assert conn.session.uuid == worker.session
        sessions = {s.uuid: (s.uuid, s.expires, s.active, "guest") for s in self.model.sessions}
        assert engine.sessions.space.rows == sessions
        owned = {}
        for name in self.within:
            tube = self.model.tubes[name]
            self.same_tube(engine.tubes[name], tube)
            for task in tube.tasks.values():
                if task.owner is not None:
                    owned[(engine.tubes[name].id, task.id)] = task.owner.uuid
        assert {key: row[3] for key, row in engine.taken.rows.items()} == owned

    def same_told(self, worker: Worker, conn: naive.Connection) -> None:
        """Two tubes that are served in one call may be so in any order."""
        told = sorted(((t, plain(o)) for t, o in worker.told), key=lambda one: one[0])
        assert told == sorted(conn.told, key=lambda one: one[0])

    def same_tube(self, real: EngineTube, tube: naive.Tube) -> None:
        rows = {}
        for task in tube.tasks.values():
            row: list[Any] = [task.id, task.status]
            if tube.ttl:
                row += [task.next_event, task.ttl, task.ttr, task.pri, task.created]
            rows[task.id] = (*row, *([task.utube] if tube.sub else []), task.data)
        assert real.space.rows == rows
        noted = {task_id: note[2] for task_id, note in real.notes.items() if note[2]}
        assert noted == {task.id: task.attempts for task in tube.tasks.values() if task.attempts}
        letters = {task_id: note[5:8] for task_id, note in real.notes.items() if note[5]}
        assert letters == {task.id: task.origin for task in tube.tasks.values() if task.origin}
        assert real.notes.keys() <= rows.keys()
        assert real.space.next_id == tube.next_id
        assert real.statistics() == tube.statistics()
        now = self.model.now
        held = {key: held for key, held in tube.keys.items() if held[1] > now}
        rows = real.engine.keys.logged.rows
        assert {k: (row[2], row[3]) for (t, k), row in rows.items() if t == real.id} == held
        assert [w.ticket for w in real.waiters.values()] == [w.ticket for w in tube.waiters]
        assert [w.ticket for w in real.blocked.values()] == [w.ticket for w in tube.blocked]

    def teardown(self) -> None:
        if hasattr(self, "pairs"):
            for name, tube in self.model.tubes.items():
                self.same_tube(self.bench.engine.tubes[name], tube)
            assert_replica_agrees(self.bench)


TestEngineAgainstModel = EngineAgainstModel.TestCase
TestEngineAgainstModel.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("method", ["release", "bury"])
def test_a_release_that_gives_the_task_up(method: str) -> None:
    """The last attempt's release buries: a driver that fails in `release` is not asked."""
    walk = EngineAgainstModel()
    walk.begin(["counted"], 0, False)
    walk.put(1, 0, {})
    walk.fail_often(1, 0, 1)
    walk.driver_fails(1, 0, 0, ("release", method))
    walk.same()
    task = walk.model.tubes["counted"].tasks[0]
    assert (task.status, task.attempts) == (("!", 2) if method == "release" else ("t", 1))
    walk.teardown()


def test_who_waits_meets_the_fault() -> None:
    """The put is done and answered; the take that it wakes is told, the one behind it served."""
    walk = EngineAgainstModel()
    walk.begin(["fifottl"], 0, False)
    walk.take(0, 0, None)
    walk.driver_fails(1, 0, 0, ("put", "take"))
    walk.same()
    assert [[plain(outcome) for _, outcome in worker.told] for worker, _ in walk.pairs] == [
        [BROKEN], [(0, "t", b"x")], [], []
    ]  # fmt: skip
    walk.teardown()
