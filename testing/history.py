"""Random calls on one tube, and what must hold after each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from tandemq.model.errors import QueueError
from tandemq_server.engine.clients import EMPTY
from tandemq_server.engine.tube import EngineTube
from tandemq_server.testing.bench import Bench
from tandemq_server.testing.case import given

STEPS = 200
TASKS_MAX = 40


def random_history(
    bench: Bench, tube: EngineTube, puts: Sequence[Mapping[str, Any] | None], seed: int
) -> None:
    """The same seed does the same. Raises AssertionError with the step after which it was wrong."""
    chance = Random(seed)
    workers = [bench.worker() for _ in range(3)]
    for step in range(STEPS):
        who, task_id = chance.choice(workers), chance.choice([*tube.space.rows, 0])
        calls: list[tuple[Any, ...]] = [
            (tube.put, who, 0, b"x", given(puts[chance.randrange(len(puts))])),
            (tube.take, who, 0, chance.choice([0, 0, 1])),
            (tube.take, who, 0, 0),
            (tube.ack, who, task_id),
            (tube.release, who, task_id, {"delay": 2} if tube.inner.delays else None),
            (tube.release, who, task_id),
            (tube.touch, who, task_id, 1),
            (tube.bury, who, task_id),
            (tube.kick, who, chance.choice([1, 2])),
            (tube.delete, who, task_id),
        ]
        if len(tube.space.rows) >= TASKS_MAX:
            calls = calls[3:4] + calls[9:]
        operation, *args = chance.choice(calls)
        outcome = bench.call(operation, *args)
        if step % 7 == 0:
            bench.pass_time(chance.choice([0.5, 1, 3]))
        if step % 50 == 49:
            bench.disconnect(workers.pop(0))
            workers.append(bench.worker())
        try:
            _holds(bench, tube, outcome)
        except AssertionError as error:
            error.add_note(f"seed {seed}, step {step}: {operation.__name__}{tuple(args[1:])}")
            raise


def _holds(bench: Bench, tube: EngineTube, outcome: Any) -> None:
    if isinstance(outcome, QueueError):
        said = outcome.text
        assert not said.startswith("Internal error"), said
    elif outcome is not EMPTY and isinstance(outcome, tuple):
        assert len(outcome) >= 3, f"a task is shown as {outcome!r}"
    rows = tube.space.rows
    listed = {state: list(tube.inner.tasks_by_state(state)) for state in "rt!~"}
    for state, found in listed.items():
        wrong = [row for row in found if row[1] != state or rows.get(row[0]) != row]
        assert not wrong, f"tasks_by_state({state!r}) gives {wrong}"
    total = sum(map(len, listed.values()))
    assert total == len(rows), f"tasks_by_state gives {total} tasks, the space has {len(rows)}"
    counts = tube.inner.counts()
    names = {"r": "ready", "t": "taken", "!": "buried", "~": "delayed"}
    expected = {name: len(listed[state]) for state, name in names.items()}
    assert {name: counts[name] for name in expected} == expected, f"counts gives {counts}"
    owned = {key[1] for key in tube.taken.rows if key[0] == tube.id}
    assert owned == {row[0] for row in listed["t"]}, f"tasks with an owner: {sorted(owned)}"
    bench.engine.store.check()
