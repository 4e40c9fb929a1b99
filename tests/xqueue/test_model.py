"""A tube against a naive model under random calls, restarts and promotions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tandemq.model.errors import QueueError
from tandemq.model.terms import Term
from tandemq_server.engine import lifecycle
from tandemq_server.facades.registered import KNOWN
from tandemq_server.facades.xqueue.record import EXPIRES
from tandemq_server.facades.xqueue.tube import RecordTube
from tests.engine.engine_bench import EPOCH, SECOND, Bench, Worker, assert_replica_agrees
from tests.xqueue.naive_xqueue import Model
from tests.xqueue.xqueue_bench import options

TUBES = ("a", "b", "c")
seconds = st.none() | st.integers(1, 6)
tubes = st.sampled_from(TUBES)
picks = st.integers(0, 30)
rightful = st.sampled_from((True, True, True, False))


def since(moment: int) -> int:
    """Whole seconds from the start of the test, 0 for no moment."""
    return round((moment - EPOCH) / SECOND) if moment else 0


class XQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        features = {"id": "auto_increment", "zombie": 7}
        self.bench = Bench(KNOWN)
        self.bench.start()
        self.bench.create("q", "xqueue", **options(features, tube_stats=list(TUBES)))
        self.model = Model()
        self.terms = 0
        self.workers = [self.bench.worker() for _ in range(2)]

    @property
    def tube(self) -> RecordTube:
        found = self.bench.engine.tubes["q"]
        assert isinstance(found, RecordTube)
        return found

    def call(self, name: str, *args: Any) -> Any:
        return self.bench.call(getattr(self.tube, name), *args)

    def pick(self, number: int) -> int:
        """A key that may be there: one of the records, or one that never was."""
        records = self.model.records.values()
        taken = [r.key for r in records if r.status == "T"]
        keys = [*taken, *taken, *self.model.records, 10_000]
        return keys[number % len(keys)]

    def caller(self, key: int, rightful: bool) -> int:
        """Who calls: the owner of the record, or the other one."""
        record = self.model.records.get(key)
        owner = 0 if record is None or record.owner is None else record.owner
        return owner if rightful else 1 - owner

    def owns(self, who: int, key: int) -> bool:
        record = self.model.records.get(key)
        return record is not None and record.status == "T" and record.owner == who

    @rule(priority=st.integers(-2, 2), tube=tubes, delay=seconds, ttl=seconds)
    def put(self, priority: int, tube: str, delay: int | None, ttl: int | None) -> None:
        if delay is not None:
            ttl = None
        task = {"priority": priority, "tube": tube}
        (made,) = self.call("put_record", self.workers[0], 0, task, {"delay": delay, "ttl": ttl})
        assert made["id"] == self.model.put(priority, tube, delay, ttl)

    @rule(tube=st.none() | tubes, ttr=seconds, who=st.integers(0, 1))
    def take(self, tube: str | None, ttr: int | None, who: int) -> None:
        opts = {"tube": tube, "ttr": ttr}
        outcome = self.call("take_record", self.workers[who], 0, 0, opts)
        found = outcome[0]["id"] if isinstance(outcome, tuple) else None
        assert found == self.model.take(tube, ttr, who)

    @rule(number=picks, mine=rightful, tube=st.none() | tubes)
    def ack(self, number: int, mine: bool, tube: str | None) -> None:
        key = self.pick(number)
        who = self.caller(key, mine)
        attr = {} if tube is None else {"update": [["=", "tube", tube]]}
        outcome = self.call("ack_record", self.workers[who], key, attr)
        assert isinstance(outcome, QueueError) != self.owns(who, key)
        if self.owns(who, key):
            self.model.records[key].tube = tube or self.model.records[key].tube
            self.model.ack(key)

    @rule(
        number=picks,
        mine=rightful,
        delay=seconds,
        ttl=seconds,
        tube=st.none() | tubes,
        step=st.integers(-1, 1),
    )
    def release(
        self,
        number: int,
        mine: bool,
        delay: int | None,
        ttl: int | None,
        tube: str | None,
        step: int,
    ) -> None:
        key = self.pick(number)
        who = self.caller(key, mine)
        if delay is not None:
            ttl = None
        update: list[Any] = [["+", "priority", step]]
        if tube is not None:
            update.append(["=", "tube", tube])
        attr = {"delay": delay, "ttl": ttl, "update": update}
        outcome = self.call("release_record", self.workers[who], key, attr)
        assert isinstance(outcome, QueueError) != self.owns(who, key)
        if self.owns(who, key):
            record = self.model.records[key]
            record.tube = tube or record.tube
            record.priority += step
            self.model.release(key, delay, ttl)

    @rule(number=picks, mine=rightful)
    def bury(self, number: int, mine: bool) -> None:
        key = self.pick(number)
        who = self.caller(key, mine)
        outcome = self.call("bury_record", self.workers[who], key)
        assert isinstance(outcome, QueueError) != self.owns(who, key)
        if self.owns(who, key):
            self.model.bury(key)

    @rule(count=st.integers(0, 3))
    def dig(self, count: int) -> None:
        assert self.call("dig", self.workers[0], count)[0] == self.model.dig(count)

    @rule(number=picks)
    def kill(self, number: int) -> None:
        key = self.pick(number)
        outcome = self.call("kill", self.workers[0], key)
        assert isinstance(outcome, QueueError) == (self.model.records.pop(key, None) is None)

    @rule(number=picks, mine=rightful, increment=st.integers(0, 3))
    def touch(self, number: int, mine: bool, increment: int) -> None:
        key = self.pick(number)
        who = self.caller(key, mine)
        outcome = self.call("touch_record", self.workers[who], key, {"increment": increment})
        record = self.model.records.get(key)
        refused = record is None or (record.status == "T" and record.owner != who)
        assert isinstance(outcome, QueueError) == refused
        if record is not None and not refused and record.deadline and record.status in "RT":
            record.deadline += increment
            if record.status == "R":
                record.life = record.deadline

    @rule()
    def second(self) -> None:
        self.bench.pass_time(1)
        self.model.pass_second()

    @rule(who=st.integers(0, 1))
    def disconnect(self, who: int) -> None:
        self.bench.disconnect(self.workers[who])
        self.model.lost(who)
        self.workers[who] = self.fresh()

    def fresh(self) -> Worker:
        return self.bench.worker()

    @rule()
    def restart(self) -> None:
        self.move_to(self.bench.replica())
        self.bench.start()

    @rule()
    def promotion(self) -> None:
        """The replica opens a term, as a node does that takes over."""
        other = self.bench.replica()
        self.terms += 1
        term = Term(
            self.terms,
            self.terms.to_bytes(16, "big"),
            bytes(16),
            len(other.log),
            "other",
            False,
        )
        released = other.engine.promote(term, None, None)
        lifecycle.serve(other.engine, released)
        self.move_to(other)
        self.bench.collect()

    def move_to(self, other: Bench) -> None:
        self.bench.engine.stop()
        self.bench = other
        self.model.lost(None)
        self.workers = [self.fresh() for _ in range(2)]

    @invariant()
    def same(self) -> None:
        view = self.tube.space.view  # type: ignore[attr-defined]
        found = {}
        for row in self.tube.space.rows.values():
            key, status, runat, priority, tube, _ = view(row)
            moments = [since(round(runat * SECOND)), since(row[EXPIRES])]
            found[key] = (status, *moments, priority, tube)
        wanted = {
            r.key: (r.status, r.deadline, r.life, r.priority, r.tube)
            for r in self.model.records.values()
        }
        assert found == wanted
        stats = self.tube.stats()[0]
        for letter in "RTWBZD":
            here = [r.tube for r in self.model.records.values() if r.status == letter]
            assert stats["counts"][letter] == len(here)
            for name in TUBES:
                assert stats["tube"][name]["counts"][letter] == here.count(name)
        self.bench.engine.store.check()
        assert not self.bench.reports

    def teardown(self) -> None:
        assert_replica_agrees(self.bench)


XQueueMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, print_blob=True
)
TestXQueue = XQueueMachine.TestCase


def test_a_long_walk(seed: int) -> None:
    """Deep states, where Hypothesis stays shallow: thousands of calls on one tube."""
    chance = random.Random(seed)
    machine = XQueueMachine()

    def moment() -> int | None:
        return chance.choice((None, None, 1, 2, 5))

    def tube() -> str | None:
        return chance.choice((None, *TUBES))

    def rightful_() -> bool:
        return chance.random() < 0.8

    steps: dict[Callable[[], None], int] = {
        lambda: machine.put(chance.randint(-2, 2), chance.choice(TUBES), moment(), moment()): 30,
        lambda: machine.take(tube(), moment(), chance.randrange(2)): 30,
        lambda: machine.ack(chance.randrange(99), rightful_(), tube()): 12,
        lambda: machine.release(
            chance.randrange(99), rightful_(), moment(), moment(), tube(), chance.randint(-1, 1)
        ): 20,
        lambda: machine.bury(chance.randrange(99), rightful_()): 8,
        lambda: machine.dig(chance.randrange(4)): 4,
        lambda: machine.kill(chance.randrange(99)): 6,
        lambda: machine.touch(chance.randrange(99), rightful_(), chance.randrange(4)): 10,
        machine.second: 15,
        lambda: machine.disconnect(chance.randrange(2)): 3,
        machine.restart: 1,
        machine.promotion: 1,
    }
    for step in chance.choices(list(steps), list(steps.values()), k=1600):
        step()
        machine.same()
    machine.teardown()
