"""A call that fails costs what it did, however deep its tube is: anybody may let calls fail."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from tandemq.model.errors import QueueError
from tests.engine.engine_bench import DRIVERS, TTL_DRIVERS, UTUBES, Bench
from tests.engine.test_failing_drivers import break_method

FEW, MANY = 50, 1500
FAILURES = 10


def options(kind: str, chance: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if kind in TTL_DRIVERS:
        found["pri"] = chance.randrange(4)
    if kind in UTUBES:
        found["utube"] = chance.choice("abc")
    return found


def steps_of_failures(kind: str, depth: int) -> int:
    """Python's calls and C's during failing puts into a tube of `depth` tasks."""
    bench, chance, steps = Bench(), random.Random(3), 0
    bench.start()
    tube, worker = bench.create("t", kind), bench.worker()
    for _ in range(depth):
        bench.call(tube.put, worker, 0, b"\xc0", options(kind, chance))
    break_method(tube, "put")

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    for _ in range(FAILURES):
        chosen = options(kind, chance)
        sys.setprofile(count)
        try:
            failed = bench.call(tube.put, worker, 0, b"\xc0", chosen)
        finally:
            sys.setprofile(None)
        assert isinstance(failed, QueueError)
    bench.engine.store.check()
    assert len(tube.space.rows) == depth
    return steps


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_failing_put_does_not_look_at_all_tasks(kind: str) -> None:
    few, many = (steps_of_failures(kind, depth) for depth in (FEW, MANY))
    assert many < few + FAILURES * 50, (few, many)
