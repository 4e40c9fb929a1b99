"""An operator at work beside the load: tasks moved, kicked, deleted, sent back, tubes emptied,
made and dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.sim_clients import Call, Client, History, Op, Outcome, Script, Sleep
from tests.simulation.sim_load import (
    NUMBERS,
    Worker,
    alterer,
    body,
    find_node,
    janitor,
    noted,
    number_of,
    put,
)
from tests.simulation.sim_plan import Plan
from tests.simulation.sim_tubes import CODE_READ_ONLY, DEAD, PASSING, SPACE15, dialect_of, kind_of
from tests.simulation.sim_world import MS, SECOND

#: Its own tasks' numbers, within those of a tube: some to be deleted by id, others by filter.
BY_ID, BY_FILTER = 900, 950
#: The sub-queue of the latter.
JUNK = "junk"
#: What is said of a tube that is not there.
MISSING = "is not defined"


def operators(plan: Plan) -> dict[str, Callable[[Client, History, Plan], Script]]:
    """By its client's name what each of them does beside producers and workers."""
    on = plan.dimensions
    found: dict[str, tuple[bool, Callable[[Client, History, Plan], Script]]] = {
        "j0": (plan.calls, janitor),
        "j2": ("y_bulk" in on, lambda *those: Operator(*those).run()),
        "j3": ("y_altered" in on, alterer),
        # What a filter moves elsewhere, nobody could tell from what was in the emptied tube.
        "j4": (on & {"y_truncated", "y_bulk"} == {"y_truncated"}, truncator),
        "j5": ("y_dropped" in on, lambda *those: Passer(*those).passes()),
    }
    return {name: script for name, (there, script) in found.items() if there}


def truncator(client: Client, history: History, plan: Plan) -> Script:
    """Empties one tube now and then, whoever has its tasks in hand."""
    chance = client.world.chance
    usual = [tube for tube in plan.tubes if tube not in ("xqueue", SPACE15, DEAD)]
    while usual:
        yield Sleep(chance.randint(SECOND // 2, 3 * SECOND))
        if client.connected_to is None:
            yield from find_node(client, chance.randrange(2))
        op = Op(client.name, "truncate", usual[0], None)
        call = Call(f"queue.tube.{usual[0]}:truncate", ())
        outcome = yield from noted(history, client, [op], call)
        if outcome.ok is None:
            client.disconnect()


class Passer(Worker):
    """Makes a tube, puts its own tasks there, works on them, drops it: each when chance has it."""

    #: What it puts at most; behind these are the numbers of what it puts in place of others.
    PUTS = 400

    def __init__(self, client: Client, history: History, plan: Plan) -> None:
        super().__init__(client, history, PASSING, plan)
        self.number = self.first = NUMBERS * len(plan.tubes)
        #: As far as it knows.
        self.made = False

    def passes(self) -> Script:
        while True:
            if self.client.connected_to is None and not (yield from self._connect()):
                continue
            draw = self.chance.random()
            if self.holding:
                yield from self._end(calm=False)
            elif not self.made:
                opts = {**self.dialect.options, "if_not_exists": True}
                call = Call(self.dialect.create().name, (PASSING, kind_of(PASSING), opts))
                self.made = yield from self._unless((yield call))
            elif draw < 0.3:
                yield from self._take(100 * MS)
            elif draw < 0.85:
                self.made = yield from self._put_one()
            else:
                gone = yield from drop(self.client, self.history)
                self.made = not ((yield from self._unless(gone)) or _missing(gone))
            yield Sleep(self.chance.randint(1 * MS, 50 * MS))

    def _put_one(self) -> Script:
        number = self.number
        self.number += 1
        size = self.chance.randint(*self.chance.choice(self.plan.payloads))
        item = (number, body(number, size), self.dialect.put_options(number, self.chance))
        outcome: Outcome = yield from put(self.client, self.history, self.dialect, [item])
        yield from self._unless(outcome)
        return not _missing(outcome)  # type: ignore[return-value]

    def _unless(self, outcome: Outcome) -> Script:
        """Go elsewhere, unless the node did what it was asked for, or said why not: if it did."""
        if outcome.unknown or (outcome.error and outcome.error[0] == CODE_READ_ONLY):
            yield from self._away()
        return outcome.ok is not None  # type: ignore[return-value]


def _missing(outcome: Outcome) -> bool:
    return outcome.error is not None and MISSING in outcome.error[1]


def drop(client: Client, history: History) -> Script:
    """Drop the tube that comes and goes, which is refused while somebody has a task of it."""
    op = Op(client.name, "drop", PASSING, None)
    return (yield from noted(history, client, [op], Call(f"queue.tube.{PASSING}:drop", ())))


def drop_in_the_end(client: Client, history: History) -> Script:
    """Until it is gone: tasks in a hand that ended come back first."""
    outcome: Outcome | None = None
    while outcome is None or not (outcome.ok or _missing(outcome)):
        yield from find_node(client, client.world.chance.randrange(len(client.machines)))
        outcome = yield from drop(client, history)
        client.disconnect()
        yield Sleep(200 * MS)


class Operator:
    """One call after the other, each with a line in the history; repeats none."""

    def __init__(self, client: Client, history: History, plan: Plan) -> None:
        self.client, self.history, self.plan = client, history, plan
        self.chance = client.world.chance
        self.turn = 0
        #: How many of its own it put, by tube and first number; what it may delete.
        self.puts: dict[tuple[str, int], int] = {}
        self.mine: list[tuple[str, int, Any]] = []
        #: Records have no such calls.
        self.tubes = [tube for tube in plan.tubes if tube != "xqueue"]

    def run(self) -> Script:
        while True:
            if self.client.connected_to is None:
                yield from find_node(self.client, self.turn)
            loaded = [tube for tube in self.tubes if tube != DEAD]
            rarely = self.chance.random() < 0.1 or not loaded
            outcome = yield from self._one(self.chance.choice(self.tubes if rarely else loaded))
            if outcome is None or outcome.unknown or (outcome.error and outcome.error[0] == 7):
                self.turn += 1
                self.client.disconnect()
            yield Sleep(self.chance.randint(20 * MS, SECOND // 2))

    def _one(self, tube: str) -> Script:
        dialect = dialect_of(self.plan, tube)
        draw = self.chance.random()
        if draw < 0.3 and dialect.batches:
            groups = tube.startswith("utube")
            return (yield from self._put(tube, BY_FILTER if groups and draw < 0.15 else BY_ID))
        if draw < 0.45 and self.mine:
            return (yield from self._delete())
        if draw < 0.5:
            return (yield from self._call(tube, "release_all"))
        if draw < 0.6 and DEAD in self.plan.tubes:
            to = {"to": self.chance.choice(self.tubes)} if draw < 0.53 else {}
            args = (self.chance.choice((1, 3, 100)), to)
            return (yield from self._call(DEAD, "redrive", *args))
        return (yield from self._bulk(tube, draw))

    def _bulk(self, tube: str, draw: float) -> Script:
        opts: dict[str, Any] = {"limit": self.chance.choice((1, 3, 20))}
        if tube.startswith("utube") and draw < 0.7:
            return (yield from self._call(tube, "bulk", "delete", {**opts, "utube": JUNK}))
        if draw < 0.75:
            state = self.chance.choice(("buried", "delayed"))
            return (yield from self._call(tube, "bulk", "kick", {**opts, "state": state}))
        if state := self.chance.choice((None, None, "ready", "ready", "delayed", "buried")):
            opts["state"] = state
        opts["to"] = self.chance.choice([other for other in self.plan.tubes if other != tube])
        return (yield from self._call(tube, "bulk", "move", opts))

    def _call(self, tube: str, name: str, *args: Any) -> Script:
        kind = f"{name} {args[0]}" if name == "bulk" else name
        op = Op(self.client.name, kind, tube, None)
        call = Call(f"queue.tube.{tube}:{name}", args)
        return (yield from noted(self.history, self.client, [op], call))

    def _put(self, tube: str, first: int) -> Script:
        place = self.puts.get((tube, first), 0)
        if place >= BY_FILTER - BY_ID - 1:
            return Outcome(ok=[])  # type: ignore[return-value]
        self.puts[tube, first] = place + 1
        number = NUMBERS * self.plan.tubes.index(tube) + first + place
        op = Op(self.client.name, "put", tube, number)
        opts: dict[str, Any] = {}
        if tube.startswith("utube"):
            op.subqueue = opts["utube"] = JUNK if first == BY_FILTER else "u0"
        dialect = dialect_of(self.plan, tube)
        data = body(number, self.chance.randint(1, 100))
        call = dialect.put([(number, data, opts)])
        outcome: Outcome = yield from noted(self.history, self.client, [op], call)
        [op.task_id] = dialect.ids(outcome, 1)
        if outcome.ok is not None and op.task_id is None:
            op.outcome = Outcome(error=(0, "full"))
        elif op.task_id is not None and first == BY_ID:
            self.mine.append((tube, number, op.task_id))
        return outcome  # type: ignore[return-value]

    def _delete(self) -> Script:
        """One of its own, wherever it is by now: perhaps done, in a worker's hand, or elsewhere."""
        tube, number, task_id = self.mine.pop(self.chance.randrange(len(self.mine)))
        op = Op(self.client.name, "delete", tube, number)
        op.task_id = task_id
        dialect = dialect_of(self.plan, tube)
        call = dialect.end("delete", task_id, self.chance)
        outcome: Outcome = yield from noted(self.history, self.client, [op], call)
        # In two logs that parted by force one id is two tasks: the answer says which one it was.
        for _, payload in dialect.taken(outcome, 1):
            op.number = number_of(payload)
        return outcome  # type: ignore[return-value]
