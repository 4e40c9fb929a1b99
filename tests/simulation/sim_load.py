"""What producers and workers do: scripts for clients, and payloads that name themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.sim_clients import Call, Client, Connect, History, Op, Outcome, Script, Sleep
from tests.simulation.sim_plan import Plan
from tests.simulation.sim_tubes import CODE_READ_ONLY, DEAD, Dialect, dialect_of
from tests.simulation.sim_world import MS, SECOND

#: Every payload of some size is cut out of this; where it starts depends on its number.
_FILLING = "".join(chr(ord("a") + number * 7 % 26) for number in range(4099))
#: Numbers of one tube's tasks; the next tube's begin here.
NUMBERS = 1_000
#: And those that each worker puts in place of others, within them.
FINISHED = 100


def body(number: int, size: int) -> Any:
    """The payload of a task, about so many bytes of it: its number, and a text nobody else has."""
    if size < 4:
        return number
    start = number * 31 % 4096
    text = _FILLING[start:] + _FILLING * (size // len(_FILLING) + 1)
    return [number, size, text[:size]]


def number_of(payload: Any) -> int:
    """Whose payload it is; -1 for one that nobody put like this."""
    if isinstance(payload, int):
        return payload
    if isinstance(payload, list) and len(payload) == 1:
        # The fields of a task of queue15.
        return number_of(payload[0])
    if not isinstance(payload, list) or len(payload) != 3:
        return -1
    number, size, text = payload
    if isinstance(text, bytes):
        text = text.decode()
    return number if body(number, size) == [number, size, text] else -1


def create(call: Call) -> Script:
    """Make a tube on the node that serves at first."""
    while not (yield Connect("a")):
        yield Sleep(10 * MS)
    outcome = yield call
    assert outcome.ok is not None, outcome


def find_node(client: Client, first: int) -> Script:
    """Connect to some node; wait a little after each round of failures."""
    names = list(client.machines)
    turn = first
    while not (yield Connect(names[turn % len(names)])):
        turn += 1
        yield Sleep(client.world.chance.randint(20 * MS, 200 * MS))


def noted(history: History, client: Client, ops: list[Op], call: Call) -> Script:
    """A call with a line in the history for each task of it. Gives its outcome."""
    for op in ops:
        op.node, op.began = client.connected_to or "", client.world.now
    history.ops += ops
    outcome = yield call
    for op in ops:
        op.ended, op.outcome, op.sync = client.world.now, outcome, client.sync
    return outcome  # type: ignore[return-value]


# -- producers -------------------------------------------------------------------------------------


def producer(client: Client, history: History, tube: str, plan: Plan, pause_us: int) -> Script:
    """Put each number once; what has a key is repeated until its outcome is known."""
    chance = client.world.chance
    dialect = dialect_of(plan, tube)
    first = NUMBERS * plan.tubes.index(tube)
    number, last = first, first + plan.puts
    turn = chance.randrange(len(client.machines))
    while number < last:
        batch = 1
        if plan.calls and dialect.batches and chance.random() < 0.1 and dialect.room >= 5:
            batch = min(chance.randint(2, 5), last - number)
        items = []
        for one in range(number, number + batch):
            size = chance.randint(*chance.choice(plan.payloads))
            items.append((one, body(one, size), dialect.put_options(one, chance)))
        number += batch
        patience = 10 * MS
        while True:
            if client.connected_to is None:
                yield from find_node(client, turn)
            outcome = yield from put(client, history, dialect, items)
            keyed = all("key" in opts for _, _, opts in items)
            if outcome.ok is not None or (outcome.unknown and not keyed):
                break
            # Refused: for sure not done. Another node may serve, or the tube have room again.
            if outcome.unknown or outcome.error[0] == CODE_READ_ONLY:
                turn += 1
                client.disconnect()
            patience = min(2 * patience, SECOND // 2)
            yield Sleep(chance.randint(10 * MS, 2 * patience))
        yield Sleep(chance.randint(1 * MS, pause_us))


def put(client: Client, history: History, dialect: Dialect, items: list[Any]) -> Script:
    """One put, or put_many, of (number, data, options), with a line for each. Gives its outcome."""
    ops = []
    for number, _, opts in items:
        op = Op(client.name, "put", dialect.tube, number)
        op.key, op.delay = opts.get("key"), opts.get("delay", 0)
        op.pri, op.subqueue = opts.get("pri", 0), opts.get("utube")
        if "ttl" in opts:
            op.expires = client.world.now + int((opts["ttl"] + op.delay) * SECOND)
        ops.append(op)
    call = dialect.put(items)
    if all(op.key for op in ops) and client.world.chance.random() < 0.1:
        # The answer comes too late: the same is sent again.
        call = replace(call, patience_us=client.world.chance.randint(1 * MS, 5 * MS))
    outcome: Outcome = yield from noted(history, client, ops, call)
    for op, task_id in zip(ops, dialect.ids(outcome, len(items)), strict=True):
        op.task_id = task_id
        if outcome.ok is not None and task_id is None:
            # A full tube answers with nothing: it was not done.
            op.outcome = Outcome(error=(0, "full"))
    if outcome.ok is not None and None in [op.task_id for op in ops]:
        return Outcome(error=(0, "full"))  # type: ignore[return-value]
    return outcome  # type: ignore[return-value]


# -- workers ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Holding:
    """One task in a worker's hand."""

    task_id: Any
    number: int
    until: int | None


class Worker:
    """Takes, holds, acks; keeps its session over reconnects: what is in hand can still be acked."""

    def __init__(self, client: Client, history: History, tube: str, plan: Plan) -> None:
        self.client, self.history, self.plan = client, history, plan
        self.dialect = dialect_of(plan, tube)
        self.chance = client.world.chance
        self.turn = self.chance.randrange(len(client.machines))
        self.session: bytes | None = None
        self.sessions = 0
        self.holding: list[Holding] = []
        #: How many tasks it put in place of others.
        self.finished = 0

    @property
    def name(self) -> str:
        return f"{self.client.name}/{self.sessions}"

    def op(self, kind: str, held: Holding | None = None) -> Op:
        op = Op(self.client.name, kind, self.dialect.tube, None if held is None else held.number)
        op.session = self.name
        if held is not None:
            op.task_id = held.task_id
            op.token = self.dialect.token_of(held.task_id)
        return op

    def run(self, hold_us: int, calm: bool) -> Script:
        """`calm`: nothing but takes and acks, so that everything comes to an end."""
        while True:
            if self.client.connected_to is None and not (yield from self._connect()):
                continue
            if not self.holding:
                yield from self._take(hold_us)
            else:
                yield from self._end(calm)

    def _away(self) -> Script:
        self.turn += 1
        self.client.disconnect()
        yield Sleep(self.chance.randint(10 * MS, 100 * MS))

    def _connect(self) -> Script:
        yield from find_node(self.client, self.turn)
        args = (self.session,) if self.session is not None else ()
        asked = self.client.world.now
        outcome = yield Call("queue.identify", args)
        if outcome.error is not None and "unknown" in outcome.error[1]:
            self.session, self.holding = None, []
            outcome = yield Call("queue.identify", ())
        if outcome.ok is None:
            yield from self._away()
            return False  # type: ignore[return-value]
        if self.session != outcome.ok[0]:
            self.sessions += 1
        self.session, self.client.session = outcome.ok[0], self.name
        self.client.met()
        self.history.heard.append((self.name, asked, self.client.world.now))
        return True  # type: ignore[return-value]

    def _take(self, hold_us: int) -> Script:
        count = 1
        if self.plan.calls and self.dialect.batches and self.chance.random() < 0.15:
            count = 3
        op = self.op("take")
        call = self.dialect.take(self.chance.choice([0, 0.2, 1]), count)
        outcome: Outcome = yield from noted(self.history, self.client, [op], call)
        found, mine = self.dialect.taken(outcome, count), op
        for place, (task_id, payload) in enumerate(found):
            if place:
                # One line for each of them.
                op = self.op("take")
                first = self.history.ops.index(mine)
                op.node, op.began, op.ended, op.outcome = mine.node, mine.began, mine.ended, outcome
                op.sync = mine.sync
                self.history.ops.insert(first + place, op)
            op.number, op.task_id = number_of(payload), task_id
            op.token = self.dialect.token_of(task_id)
            ttr = self.dialect.ttr
            op.until = None if ttr is None else op.began + int(ttr * SECOND)
            self.holding.append(Holding(task_id, op.number, op.until))
        if found:
            yield Sleep(self.chance.randint(1 * MS, hold_us))
        elif outcome.unknown:
            # The old session may hold a task nobody knows of: let it expire.
            self.session = None
            self.client.disconnect()
        elif outcome.ok is None:
            yield from self._away()
        else:
            yield Sleep(self.chance.randint(5 * MS, 100 * MS))

    def _succeeds(self, draw: float) -> bool:
        return self.dialect.batches and draw < 0.5 and self.finished < FINISHED - 1

    def _finish(self, held: Holding) -> tuple[Call, Op]:
        """Ack a task and put its successor into the same tube, as one."""
        self.finished += 1
        number = held.number // NUMBERS * NUMBERS + FINISHED * int(self.client.name[1:])
        number += FINISHED + self.finished
        opts = self.dialect.put_options(held.number, self.chance) if self.dialect.groups else {}
        opts = {name: value for name, value in opts.items() if name == "utube"}
        op = Op(self.client.name, "put", self.dialect.tube, number)
        op.subqueue = opts.get("utube")
        size = self.chance.randint(*self.chance.choice(self.plan.payloads))
        return self.dialect.finish(held.task_id, body(number, size), opts), op

    def _end(self, calm: bool) -> Script:
        """Bring what is in hand to an end, or a little nearer to it."""
        draw = 1.0 if calm else self.chance.random()
        held = self.holding
        successor: Op | None = None
        if len(held) > 1 and draw < 0.5:
            verb, ends = "ack", list(held)
            if draw < 0.15 and "y_bulk" in self.plan.dimensions:
                verb = "release"
            call = self.dialect.many(verb, [one.task_id for one in held])
        else:
            verb = (
                self.dialect.verb(draw) if self.plan.calls else "release" if draw < 0.1 else "ack"
            )
            ends = held[:1]
            call = self.dialect.end(verb, ends[0].task_id, self.chance)
            if verb == "ack" and "finishes" in self.plan.dimensions and self._succeeds(draw):
                call, successor = self._finish(ends[0])
        ops = [self.op(verb, one) for one in ends]
        for op in ops:
            op.delay = self.dialect.delay_of(call) if successor is None else 0.0
        if successor is not None:
            ops.append(successor)
        outcome: Outcome = yield from noted(self.history, self.client, ops, call)
        if successor is not None and outcome.ok is not None:
            successor.task_id = outcome.ok[0][0]
        if outcome.unknown:
            # Perhaps done, perhaps not: asked again it is either still in hand or gone.
            self.client.disconnect()
        elif verb == "touch" and outcome.ok is not None:
            yield Sleep(self.chance.randint(1 * MS, 100 * MS))
        elif outcome.ok is not None or (outcome.error and outcome.error[0] != CODE_READ_ONLY):
            self.holding = [one for one in held if one not in ends]
        else:
            yield from self._away()


def worker(
    client: Client, history: History, tube: str, plan: Plan, hold_us: int, calm: bool = False
) -> Script:
    yield from Worker(client, history, tube, plan).run(hold_us, calm)


def alterer(client: Client, history: History, plan: Plan) -> Script:
    """Gives tubes other options: how many tasks they take, how often one may fail."""
    chance = client.world.chance
    tubes = [tube for tube in plan.tubes if dialect_of(plan, tube).batches and tube != DEAD]
    while tubes:
        yield Sleep(chance.randint(50 * MS, SECOND))
        if client.connected_to is None:
            yield from find_node(client, chance.randrange(2))
        tube = chance.choice(tubes)
        # A batch has up to five, and waits for room.
        opts: dict[str, Any] = {"capacity": chance.choice((5, 10, 30))}
        if tube != "limfifottl":
            opts["overflow"] = "reject"
        if DEAD in plan.tubes and chance.random() < 0.5:
            opts |= {"max_attempts": chance.choice((2, 3, 5)), "dead_letter": DEAD}
        op = Op(client.name, "alter", tube, None)
        call = Call("queue.alter_tube", (tube, opts))
        outcome = yield from noted(history, client, [op], call)
        if outcome.ok is None:
            client.disconnect()


def janitor(client: Client, history: History, plan: Plan, calm: bool = False) -> Script:
    """Kicks what is buried, pauses tubes and resumes them."""
    chance = client.world.chance
    turn = 0
    while True:
        if client.connected_to is None:
            yield from find_node(client, turn)
        tube = chance.choice(plan.tubes)
        dialect = dialect_of(plan, tube)
        calls = [("resume", Call(f"queue.tube.{tube}:resume", ())), ("kick", dialect.kick())]
        if not calm and chance.random() < 0.2:
            calls = [
                ("pause", Call(f"queue.tube.{tube}:pause", (chance.choice(("puts", "takes")),)))
            ]
        for kind, call in calls:
            op = Op(client.name, kind, tube, None)
            outcome = yield from noted(history, client, [op], call)
            if outcome.ok is None:
                turn += 1
                client.disconnect()
                break
        yield Sleep(chance.randint(50 * MS, 100 * MS if calm else SECOND))
