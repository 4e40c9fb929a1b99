"""What producers and workers do: scripts for clients, and payloads that name themselves."""

from __future__ import annotations

from typing import Any

from sim_clients import Call, Client, Connect, History, Script, Sleep
from sim_plan import Plan
from sim_world import MS, SECOND

#: Every payload of some size is cut out of this; where it starts depends on its number.
_FILLING = "".join(chr(ord("a") + number * 7 % 26) for number in range(4099))


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
    if not isinstance(payload, list) or len(payload) != 3:
        return -1
    number, size, text = payload
    if isinstance(text, bytes):
        text = text.decode()
    return number if body(number, size) == [number, size, text] else -1


def noted(history: History, client: Client, kind: str, key: Any, call: Call) -> Script:
    """A call with a line in the history. Gives its outcome."""
    op = history.note(client, kind, key)
    outcome = yield call
    op.ended, op.outcome, outcome.op = client.world.now, outcome, op
    return outcome  # type: ignore[return-value]


def _find_node(client: Client, first: int) -> Script:
    """Connect to some node; wait a little after each round of failures."""
    names = list(client.machines)
    turn = first
    while not (yield Connect(names[turn % len(names)])):
        turn += 1
        yield Sleep(client.world.chance.randint(20 * MS, 200 * MS))


def producer(client: Client, history: History, tube: str, plan: Plan, pause_us: int) -> Script:
    """Put each number once; an unknown outcome is left unknown."""
    chance = client.world.chance
    turn = chance.randrange(2)
    for number in range(plan.puts):
        size = chance.randint(*chance.choice(plan.payloads))
        patience = 10 * MS
        while True:
            if client.connected_to is None:
                yield from _find_node(client, turn)
            opts = {"utube": f"u{number % 3}"} if tube.startswith("utube") else {}
            call = Call(f"queue.tube.{tube}:put", (body(number, size), opts))
            outcome = yield from noted(history, client, "put", (tube, number), call)
            if outcome.ok:
                outcome.op.task_id = outcome.ok[0][0]
            if outcome.unknown or outcome.ok is not None:
                break
            # Refused: for sure not done. The other node may serve.
            turn += 1
            client.disconnect()
            patience = min(2 * patience, SECOND)
            yield Sleep(chance.randint(10 * MS, 2 * patience))
        yield Sleep(chance.randint(1 * MS, pause_us))


def worker(client: Client, history: History, tube: str, hold_us: int) -> Script:
    """Take, hold, ack; keep the session over reconnects, so that what is in hand can be acked."""
    chance = client.world.chance
    turn = chance.randrange(2)
    session: bytes | None = None
    holding: tuple[int, Any] | None = None
    while True:
        if client.connected_to is None:
            yield from _find_node(client, turn)
            args = (session,) if session is not None else ()
            outcome = yield Call("queue.identify", args)
            if outcome.error is not None and "unknown" in outcome.error[1]:
                session, holding = None, None
                continue_without = yield Call("queue.identify", ())
                outcome = continue_without
            if outcome.ok is None:
                turn += 1
                client.disconnect()
                yield Sleep(chance.randint(20 * MS, 200 * MS))
                continue
            session = outcome.ok[0]
        if holding is None:
            call = Call(f"queue.tube.{tube}:take", (chance.choice([0, 0.2, 1]),))
            outcome = yield from noted(history, client, "take", (tube, None), call)
            if outcome.ok and outcome.ok[0]:
                task = outcome.ok[0]
                holding = (task[0], number_of(task[2]))
                outcome.op.key, outcome.op.task_id = (tube, holding[1]), task[0]
                yield Sleep(chance.randint(1 * MS, hold_us))
            elif outcome.unknown:
                # The old session may hold a task nobody knows of: let it expire.
                session = None
                client.disconnect()
            elif outcome.ok is None:
                turn += 1
                client.disconnect()
            else:
                yield Sleep(chance.randint(5 * MS, 100 * MS))
            continue
        task_id, number = holding
        verb = "release" if chance.random() < 0.1 else "ack"
        call = Call(f"queue.tube.{tube}:{verb}", (task_id,))
        outcome = yield from noted(history, client, verb, (tube, number), call)
        outcome.op.task_id = task_id
        if outcome.unknown:
            # Perhaps done, perhaps not: asked again it is either still in hand or gone.
            client.disconnect()
        elif outcome.ok is not None or (outcome.error and outcome.error[0] != 7):
            holding = None
        else:
            turn += 1
            client.disconnect()
            yield Sleep(chance.randint(10 * MS, 100 * MS))
