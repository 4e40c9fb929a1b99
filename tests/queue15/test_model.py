"""The queue15 calls against the naive model, with restarts, switch-overs and lost connections.

HYPOTHESIS_PROFILE=ci (or CI in the environment) walks further; the default is a short walk.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tandemq_server.facades.queue15 import tasks as q
from tandemq_server.facades.registered import KNOWN
from tests.engine.engine_bench import SECOND, Bench, Worker, assert_replica_agrees
from tests.queue15.naive15 import Naive
from tests.queue15.queue15_bench import Calls, make, seen

PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
EXAMPLES, STEPS = {"ci": (80, 60)}.get(PROFILE, (40, 50))
MISSING = 10**6

tubes = st.sampled_from(["a", "a", "a", "b"])
owners = st.integers(0, 2)
#: Which task: by its place among those there are, or one that is not there.
tasks = st.integers(0, 8)
seconds = st.sampled_from([0, 0, 1, 3])


class AgainstModel(RuleBasedStateMachine):
    @initialize(grace=st.sampled_from([0, 0, 4]))
    def begin(self, grace: int) -> None:
        self.calls = make(Bench(KNOWN))
        self.start = self.calls.bench.engine.now
        if grace:
            self.calls.bench.call(self.calls.bench.engine.configure, grace, True)
        self.model = Naive(grace)
        #: The worker that is each owner; owners of lost connections get a new number.
        self.workers: dict[int, Worker] = {}
        self.owner = {place: place for place in range(3)}
        self.next_owner = 3
        self.nodes = 0
        self.ids: dict[int, str] = {}
        self.standby = self.new_node()

    def who(self, place: int) -> tuple[int, Worker]:
        owner = self.owner[place]
        if owner not in self.workers:
            self.workers[owner] = self.calls.bench.worker()
        return owner, self.workers[owner]

    def number(self, place: int) -> int:
        present = self.model.tasks
        return present[place].number if place < len(present) else MISSING

    def ident(self, number: int) -> str:
        return self.ids.get(number, "f" * 32)

    @rule(
        tube=tubes, delay=seconds, ttl=st.sampled_from([0, 0, 0, 0, 3, 9]), ttr=seconds,
        pri=st.sampled_from([0, 0, 5, -127, -500, 128]), urgent=st.booleans(),
    )  # fmt: skip
    def put(self, tube: str, delay: int, ttl: int, ttr: int, pri: int, urgent: bool) -> None:
        number = self.model.put_count
        name = "urgent" if urgent else "put"
        reply = self.calls(name, tube, delay, str(ttl), ttr, pri, number)
        self.ids[number] = reply[0]
        self.model.put(tube, delay, ttl, ttr, pri, urgent)
        assert reply[1:] == [tube, "delayed" if delay else "ready", number]

    @rule(place=owners, tube=tubes)
    def take(self, place: int, tube: str) -> None:
        owner, worker = self.who(place)
        wanted = self.model.take(owner, tube)
        reply = self.calls("take", tube, 0, by=worker)
        expected = None if wanted is None else [self.ids[wanted.number], tube, "taken", wanted.data]
        assert reply == expected

    @rule(place=owners, tube=tubes)
    def wait(self, place: int, tube: str) -> None:
        owner, worker = self.who(place)
        if self.model.first(tube) is None and not worker.told:
            self.model.waiters.append((owner, tube))
            self.calls("take", tube, by=worker)

    def on_task(self, name: str, status: str, place: int, task: int, *args: Any) -> Any:
        """Call it; the model's task if the call must have succeeded, else None."""
        fitting = [one for one in self.model.tasks if one.status == status]
        if fitting and task < 6:
            # Mostly a call that can succeed, or nothing interesting would ever happen.
            number = fitting[task % len(fitting)].number
            held_by = fitting[task % len(fitting)].owner
            places = {owner: place for place, owner in self.owner.items()}
            place = places.get(-1 if held_by is None else held_by, place)
        else:
            number = self.number(task)
        owner, worker = self.who(place)
        needs_owner = owner if status == "taken" else None
        refusal = self.model.refusal(number, status, needs_owner, name)
        reply = self.calls(name, self.ident(number), *args, by=worker)
        if refusal is not None:
            assert reply == refusal
            return None
        assert reply[0] == self.ids[number]
        return self.model.find(number)

    @rule(place=owners, task=tasks)
    def ack(self, place: int, task: int) -> None:
        if (found := self.on_task("ack", "taken", place, task)) is not None:
            self.model.tasks.remove(found)

    @rule(place=owners, task=tasks, delay=seconds, ttl=seconds)
    def release(self, place: int, task: int, delay: int, ttl: int) -> None:
        found = self.on_task("release", "taken", place, task, delay, ttl)
        if found is not None:
            self.model.release(found, delay, ttl)

    @rule(place=owners, task=tasks)
    def requeue(self, place: int, task: int) -> None:
        if (found := self.on_task("requeue", "taken", place, task)) is not None:
            self.model.requeue(found)

    @rule(place=owners, tube=tubes, pri=st.sampled_from([0, 5]))
    def send_back(self, place: int, tube: str, pri: int) -> None:
        """Two tasks, of which the one whose turn it is goes to the end."""
        for _ in range(2):
            self.put(tube, 0, 0, 0, pri, False)
        owner, worker = self.who(place)
        wanted = self.model.take(owner, tube)
        if wanted is not None:
            assert self.calls("take", tube, 0, by=worker)[0] == self.ids[wanted.number]
            assert self.calls("requeue", self.ids[wanted.number], by=worker)[2] == "ready"
            self.model.requeue(wanted)

    @rule(place=owners, task=tasks)
    def bury(self, place: int, task: int) -> None:
        if (found := self.on_task("bury", "taken", place, task)) is not None:
            found.cbury += 1
            self.model.move(found, "buried")

    @rule(place=owners, task=tasks)
    def done(self, place: int, task: int) -> None:
        if (found := self.on_task("done", "taken", place, task, "new")) is not None:
            found.data = "new"
            self.model.move(found, "done")

    @rule(place=owners, task=tasks)
    def touch(self, place: int, task: int) -> None:
        if (found := self.on_task("touch", "taken", place, task)) is not None:
            found.event = min(self.model.now + found.ttr, found.deadline)

    @rule(place=owners, task=tasks)
    def dig(self, place: int, task: int) -> None:
        if (found := self.on_task("dig", "buried", place, task)) is not None:
            self.model.dig(found)

    @rule(tube=tubes, count=st.integers(-1, 3))
    def kick(self, tube: str, count: int) -> None:
        assert self.calls("kick", tube, count) == self.model.kick(tube, max(0, count))

    @rule(task=tasks)
    def delete(self, task: int) -> None:
        if task < 4:
            return
        number = self.number(task)
        reply = self.calls("delete", self.ident(number))
        found = self.model.find(number)
        if found is None:
            assert reply == "! Task not found"
        else:
            assert reply[2] == found.status
            self.model.tasks.remove(found)

    @rule(rare=st.integers(0, 4), tube=tubes)
    def truncate(self, rare: int, tube: str) -> None:
        if rare:
            return
        assert self.calls("truncate", tube) == self.model.truncate(tube)

    @rule(gone=st.sampled_from([1, 1, 2]))
    def pass_time(self, gone: int) -> None:
        self.calls.bench.pass_time(gone)
        self.model.pass_time(gone)

    @rule(place=owners)
    def disconnect(self, place: int) -> None:
        owner, worker = self.who(place)
        self.check_told()
        del self.workers[owner]
        self.calls.bench.disconnect(worker)
        self.model.leave(owner)
        self.renew(place)

    def renew(self, place: int) -> None:
        self.owner[place] = self.next_owner
        self.next_owner += 1

    def new_node(self) -> Bench:
        """Another engine over all that was logged so far."""
        old = self.calls.bench
        self.nodes += 1
        return Bench(KNOWN, old.log, old.engine.now, b"n%d" % self.nodes)

    def ship(self) -> None:
        """What was logged since goes to the standby, as records do on a link."""
        self.calls.bench.collect()
        for record in self.calls.bench.log[len(self.standby.log) :]:
            self.standby.engine.store.apply(record[3])
            self.standby.log.append(record)

    @rule(back=st.sets(owners))
    def restart(self, back: set[int]) -> None:
        """The log is read anew; the standby goes on."""
        self.check_told()
        self.go_on(self.new_node(), back)

    @rule(back=st.sets(owners))
    def switch_over(self, back: set[int]) -> None:
        """The standby, which took in record by record, is promoted; another one begins."""
        self.check_told()
        self.ship()
        old, bench = self.calls.bench, self.standby
        bench.engine.now = old.engine.now
        self.go_on(bench, back)
        self.standby = self.new_node()

    def go_on(self, bench: Bench, back: set[int]) -> None:
        """`bench` serves from here on; the owners at the places of `back` claim their sessions."""
        old = self.calls.bench
        sessions = {place: self.workers.get(self.owner[place]) for place in range(3)}
        self.workers = {}
        self.calls = Calls(bench)
        bench.workers = old.workers + 1
        bench.start()
        came_back = set()
        for place, worker in sessions.items():
            session = None if worker is None else worker.session
            if (
                place in back
                and session is not None
                and session in bench.engine.sessions.space.rows
            ):
                came_back.add(self.owner[place])
                _, new = self.who(place)
                bench.call(bench.engine.sessions.identify, new, session)
        self.model.change_master(came_back)
        for place in range(3):
            if self.owner[place] not in came_back:
                self.renew(place)

    def check_told(self) -> None:
        for owner, number in self.model.served:
            _, outcome = self.workers[owner].told.pop(0)
            assert seen(outcome)[0] == self.ids[number]
        self.model.served.clear()
        assert not any(worker.told for worker in self.workers.values())

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        self.check_told()
        rows = {row[q.ID]: row for row in self.calls.tube.space.rows.values()}
        assert rows.keys() == {self.ids[task.number] for task in self.model.tasks}
        for task in self.model.tasks:
            row = rows[self.ids[task.number]]
            assert seen(self.calls("peek", row[q.ID]))[1:] == [task.tube, task.status, task.data]
            ranks = (row[q.RANK] - q.MIDDLE, row[q.PRI])
            assert ranks == (task.rank, 128 - task.pri)
            moment = (row[q.EVENT] - self.start) // SECOND
            assert (moment, row[q.CREATED] + row[q.TTL]) == (
                task.event, self.start + task.deadline * SECOND
            )  # fmt: skip
            assert row[q.CBURY : q.DATA] == (task.cbury, task.ctaken)
        self.calls.bench.engine.store.check()
        self.ship()
        self.standby.engine.store.check()

    def teardown(self) -> None:
        if hasattr(self, "model"):
            assert_replica_agrees(self.calls.bench)


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
