"""What a check of a driver works on: a fresh tube in an engine of its own, and who uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from tandemq_server.drivers.base import Driver
from tandemq_server.engine import admin
from tandemq_server.engine.tube import EngineTube
from tandemq_server.testing.bench import Bench, Worker, assert_replica_agrees

#: Whatever a put is given, as long as no deadline comes by itself within a check.
Options = Mapping[str, Any] | None


def given(options: Options) -> dict[str, Any] | None:
    """Options as a call brings them: a dictionary of its own, None where there are none."""
    return dict(options) if options else None


class Case:
    """A tube of the driver under test, and who uses it.

    `made` raises AssertionError if the driver refuses the options.
    """

    def __init__(
        self, driver: type[Driver], name: str, options: Options, puts: Sequence[Options]
    ) -> None:
        self.driver, self.name, self.options, self.puts = driver, name, options, puts
        self.bench = Bench({name: driver})
        self.bench.start()
        self.tube = self.made("t")
        self.who, self.other = self.bench.worker(), self.bench.worker()
        self._puts = cycle(puts)

    def made(self, tube: str) -> EngineTube:
        opts = dict(self.options or {})
        outcome = self.bench.call(admin.create_tube, self.bench.engine, tube, self.name, opts)
        assert isinstance(outcome, EngineTube), f"create_tube: {outcome}"
        return outcome

    def again(self) -> Case:
        """The same with nothing in it."""
        return Case(self.driver, self.name, self.options, self.puts)

    def put(self, data: bytes = b"x") -> Any:
        """One task more, with the next of the options given; its row as a client sees it."""
        outcome = self.call("put", self.who, 0, data, given(next(self._puts)))
        assert isinstance(outcome, tuple), f"put: {outcome!r}"
        return outcome

    def call(self, method: str, *args: Any) -> Any:
        return self.bench.call(getattr(self.tube, method), *args)

    def state(self, task_id: int = 0) -> str:
        """The status letter of a task, or "missing"."""
        row = self.tube.space.rows.get(task_id)
        return "missing" if row is None else str(row[1])

    def bring(self, state: str, owner: Worker) -> None:
        """Task 0 in a state; a taken one belongs to `owner`."""
        if state == "missing":
            return
        self.put()
        if state in "t~":
            taken = self.call("take", owner, 0, 0)
            equal(taken[:2], (0, "t"), "a take of the only task")
        if state == "~":
            self.call("release", owner, 0, {"delay": 9})
        elif state == "!":
            self.call("bury", owner, 0)
        equal(self.state(), state, "the state a task was brought into")

    def done(self) -> None:
        """What must hold after whatever happened."""
        agreed(self.bench)
        equal(self.bench.reports, [], "lines for the node's log")


def equal(found: Any, expected: Any, what: str) -> None:
    """Raise AssertionError with both, whoever runs the suite."""
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, expected {expected!r}")


def agreed(bench: Bench) -> Bench:
    """A second engine with everything logged; raises AssertionError where it differs."""
    try:
        return assert_replica_agrees(bench)
    except Exception as error:
        error.add_note("a replica must come to the same state: rows, deadlines and indexes")
        raise
