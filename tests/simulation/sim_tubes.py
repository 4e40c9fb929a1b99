"""The tubes of a plan, and how each kind of them is spoken to: names, arguments, answers."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.sim_clients import Call, Outcome

if TYPE_CHECKING:
    from tests.simulation.sim_plan import Plan

CODE_READ_ONLY = 7
#: Where tasks go that were given up.
DEAD = "dead"
#: A tube that is made and dropped again and again.
PASSING = "passing"
#: A space of the calls of 1.5, its number, and the tubes in it.
SPACE15, NUMBER15, LANES15 = "space15", 15, ("one", "two")
XQUEUE = {
    "format": [
        {"name": "id", "type": "unsigned"},
        {"name": "status", "type": "string"},
        {"name": "runat", "type": "number"},
        {"name": "payload", "type": "any"},
    ],
    "fields": {"status": "status", "runat": "runat"},
    "features": {"id": "auto_increment", "delayed": True, "ttl": True, "ttr": True},
}


def kind_of(tube: str) -> str:
    """The type of a tube; but for three they are named by it."""
    return {DEAD: "fifo", PASSING: "fifottl", SPACE15: "queue15"}.get(tube, tube)


def options_of(plan: Plan, tube: str) -> dict[str, Any]:
    """What the tube is created with."""
    if not plan.calls or tube in (DEAD, SPACE15):
        return {}
    chance = Random(f"{plan.seed}/{tube}")
    found: dict[str, Any] = {}
    if tube == "limfifottl":
        found["capacity"] = chance.choice((3, 10, 30))
    elif chance.random() < 0.2:
        found |= {"capacity": chance.choice((5, 20)), "overflow": "reject"}
    if DEAD in plan.tubes and chance.random() < 0.5:
        found |= {"max_attempts": 3, "dead_letter": DEAD}
    if tube in ("fifottl", "utubettl") and chance.random() < 0.3:
        found["ttr"] = 3.0
    return found


def dialect_of(plan: Plan, tube: str) -> Dialect:
    kinds = {"xqueue": Records, SPACE15: Lanes15}
    usual = Fenced if "y_tokens" in plan.dimensions else Dialect
    return kinds.get(tube, usual)(plan, tube)


class Dialect:
    """The module's own calls. ttr: how long a task may be held, in seconds; None for ever."""

    batches = True

    def __init__(self, plan: Plan, tube: str) -> None:
        self.plan = plan
        self.tube = tube
        self.times = kind_of(tube) in ("fifottl", "utubettl", "limfifottl")
        self.options = options_of(plan, tube)
        self.ttr: float | None = self.options.get("ttr")

    @property
    def room(self) -> int:
        """Tasks it takes at the same time."""
        return self.options.get("capacity", 1_000)

    def create(self) -> Call:
        return Call("queue.create_tube", (self.tube, kind_of(self.tube), self.options))

    # -- puts ------------------------------------------------------------------------------------

    def put_options(self, number: int, chance: Random) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.tube.startswith("utube"):
            found["utube"] = f"u{number % 3}"
        if not self.plan.calls:
            return found
        draw = chance.random()
        if draw < 0.35:
            found["key"] = f"k{number}"
        if self.times:
            draw = chance.random()
            if draw < 0.15:
                found["delay"] = chance.choice((0.05, 0.5, 2.0))
            elif draw < 0.25:
                found["ttl"] = chance.choice((1.0, 4.0))
            elif draw < 0.5:
                found["pri"] = chance.randint(0, 3)
        return found

    def put(self, items: list[Any]) -> Call:
        if len(items) == 1:
            _, data, opts = items[0]
            return Call(f"queue.tube.{self.tube}:put", (data, opts))
        return Call(f"queue.tube.{self.tube}:put_many", ([[d, o] for _, d, o in items],))

    def ids(self, outcome: Outcome, count: int) -> list[Any]:
        if not outcome.ok:
            return [None] * count
        if count == 1:
            return [outcome.ok[0][0] if outcome.ok[0] else None]
        return list(outcome.ok[0])

    # -- takes and their ends --------------------------------------------------------------------

    def take(self, timeout: float, count: int) -> Call:
        if count > 1:
            return Call(f"queue.tube.{self.tube}:take_many", (count, timeout))
        return Call(f"queue.tube.{self.tube}:take", (timeout,))

    def taken(self, outcome: Outcome, count: int) -> list[tuple[Any, Any]]:
        if not outcome.ok or not outcome.ok[0]:
            return []
        tasks = outcome.ok[0] if count > 1 else [outcome.ok[0]]
        return [(task[0], task[2]) for task in tasks]

    def many(self, verb: str, ids: list[Any]) -> Call:
        return Call(f"queue.tube.{self.tube}:{verb}_many", (ids,))

    def verb(self, draw: float) -> str:
        if draw < 0.08:
            return "release"
        if draw < 0.12:
            return "bury"
        if draw < 0.2 and self.times:
            return "touch"
        return "ack"

    def end(self, verb: str, task_id: Any, chance: Random) -> Call:
        args: tuple[Any, ...] = (task_id,)
        if verb == "touch":
            args += (1.0,)
        elif verb == "release" and self.times and self.plan.calls and chance.random() < 0.5:
            args += ({"delay": 0.3},)
        return Call(f"queue.tube.{self.tube}:{verb}", args)

    @property
    def groups(self) -> bool:
        return self.tube.startswith("utube")

    def finish(self, task_id: Any, data: Any, opts: dict[str, Any]) -> Call:
        """Ack the task and put another one here."""
        put = [self.tube, data, opts]
        return Call(f"queue.tube.{self.tube}:finish", (task_id, [put]))

    def delay_of(self, call: Call) -> float:
        last = call.args[-1] if len(call.args) > 1 else None
        return float(last.get("delay", 0)) if isinstance(last, dict) else 0.0

    def kick(self) -> Call:
        return Call(f"queue.tube.{self.tube}:kick", (10,))

    def token_of(self, _task_id: Any) -> int | None:
        """Of the delivery it had last, if it is named by one."""
        return None


class Fenced(Dialect):
    """The same, with every delivery named by its token. One for each worker."""

    def __init__(self, plan: Plan, tube: str) -> None:
        super().__init__(plan, tube)
        self.tokens: dict[Any, int] = {}

    def token_of(self, task_id: Any) -> int | None:
        return self.tokens.get(task_id)

    def take(self, timeout: float, count: int) -> Call:
        call = super().take(timeout, count)
        return replace(call, args=(*call.args, {"token": True}))

    def taken(self, outcome: Outcome, count: int) -> list[tuple[Any, Any]]:
        if outcome.ok and outcome.ok[0]:
            for task in outcome.ok[0] if count > 1 else [outcome.ok[0]]:
                if len(task) > 3:
                    self.tokens[task[0]] = task[3]
        return super().taken(outcome, count)

    def many(self, verb: str, ids: list[Any]) -> Call:
        return super().many(verb, [[one, self.tokens[one]] for one in ids])

    def end(self, verb: str, task_id: Any, chance: Random) -> Call:
        call = super().end(verb, task_id, chance)
        return call if verb == "delete" else self._named(call, task_id)

    def finish(self, task_id: Any, data: Any, opts: dict[str, Any]) -> Call:
        return self._named(super().finish(task_id, data, opts), task_id)

    def _named(self, call: Call, task_id: Any) -> Call:
        *args, last = call.args
        opts = last if isinstance(last, dict) else {}
        args = args if isinstance(last, dict) else [*args, last]
        return replace(call, args=(*args, {**opts, "token": self.tokens[task_id]}))


class Records(Dialect):
    """Tubes of records, the calls of xqueue."""

    batches = False

    def create(self) -> Call:
        return Call("xqueue.upgrade", (self.tube, XQUEUE))

    def put_options(self, number: int, chance: Random) -> dict[str, Any]:
        return {"delay": 0.3} if chance.random() < 0.1 else {}

    def put(self, items: list[Any]) -> Call:
        _, data, opts = items[0]
        return Call(f"box.space.{self.tube}:put", ({"payload": data}, opts))

    def ids(self, outcome: Outcome, count: int) -> list[Any]:
        return [outcome.ok[0][b"id"] if outcome.ok else None]

    def take(self, timeout: float, count: int) -> Call:
        return Call(f"box.space.{self.tube}:take", (timeout,))

    def taken(self, outcome: Outcome, count: int) -> list[tuple[Any, Any]]:
        if not outcome.ok or not outcome.ok[0]:
            return []
        return [(outcome.ok[0][b"id"], outcome.ok[0][b"payload"])]

    def verb(self, draw: float) -> str:
        return "release" if draw < 0.08 else "bury" if draw < 0.12 else "ack"

    def end(self, verb: str, task_id: Any, chance: Random) -> Call:
        return Call(f"box.space.{self.tube}:{verb}", (task_id,))

    def kick(self) -> Call:
        return Call(f"box.space.{self.tube}:dig", (10,))


class Lanes15(Dialect):
    """A space of two tubes, the calls of 1.5: tasks are named by 32 hex digits."""

    batches = False

    def __init__(self, plan: Plan, tube: str) -> None:
        super().__init__(plan, tube)
        self.ttr = 60.0
        self.turn = 0
        #: Tasks in hand that may be kept as done: they vanish by themselves. What they hold.
        self.short: dict[Any, Any] = {}

    def create(self) -> Call:
        return Call("queue15.create_space", (NUMBER15, {}))

    def put_options(self, number: int, chance: Random) -> dict[str, Any]:
        draw = chance.random()
        found: dict[str, Any] = {"pri": chance.randint(-3, 3) if draw < 0.4 else 0}
        if draw < 0.15:
            found["delay"] = chance.choice((0.05, 0.5))
        elif draw < 0.25:
            found["ttl"] = chance.choice((1.0, 4.0))
        found["call"] = chance.choice(("put", "put", "urgent", "put_unique"))
        if self._vanishes(number):
            found = {"pri": found["pri"], "call": found["call"], "ttl": 4.0}
        return found

    def _vanishes(self, number: int) -> bool:
        return "y_done" in self.plan.dimensions and number % 5 == 3

    def put(self, items: list[Any]) -> Call:
        number, data, opts = items[0]
        times = (opts.get("delay", 0), opts.get("ttl", 0), 0)
        head = (NUMBER15, LANES15[number % 2], *times, opts["pri"])
        return Call(f"queue15.{opts['call']}", (*head, data))

    def ids(self, outcome: Outcome, count: int) -> list[Any]:
        return [outcome.ok[0][0].decode() if outcome.ok else None]

    def take(self, timeout: float, count: int) -> Call:
        # Whoever waits in one tube of the space gets nothing of the other.
        self.turn += 1
        return Call("queue15.take", (NUMBER15, LANES15[self.turn % 2], timeout / 4))

    def taken(self, outcome: Outcome, count: int) -> list[tuple[Any, Any]]:
        if not outcome.ok or not outcome.ok[0]:
            return []
        task_id, data = outcome.ok[0][0].decode(), outcome.ok[0][3]
        number = data if isinstance(data, int) else data[0]
        if self._vanishes(number):
            self.short[task_id] = number
        return [(task_id, data)]

    def verb(self, draw: float) -> str:
        if draw < 0.1:
            return "release"
        return "bury" if draw < 0.14 else "touch" if draw < 0.2 else "ack"

    def end(self, verb: str, task_id: Any, chance: Random) -> Call:
        args: tuple[Any, ...] = (NUMBER15, task_id)
        if verb == "ack" and task_id in self.short and chance.random() < 0.7:
            return Call("queue15.done", (*args, self.short[task_id]))
        if verb == "release" and chance.random() < 0.5:
            verb = "requeue"
        elif verb == "release" and chance.random() < 0.3:
            args += (0.3,)
        return Call(f"queue15.{verb}", args)

    def delay_of(self, call: Call) -> float:
        return float(call.args[2]) if len(call.args) > 2 else 0.0
