"""The contract of docs/custom-drivers.md as a suite: `driver_conformance(MyDriver)`.

A check gets a fresh tube of the driver in an engine with a virtual clock. After each of them the
whole log is applied to a second engine, which must come to an equal state. A check asks nothing
about the order in which tasks are served, but that it depends on nothing outside the space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tandemq.model.errors import QueueError
from tandemq_server.drivers.base import Driver, check_driver
from tandemq_server.engine import batches
from tandemq_server.engine.clients import EMPTY, NIL, PENDING
from tandemq_server.engine.tube import EngineTube
from tandemq_server.testing.bench import shared_state
from tandemq_server.testing.case import Case, Options, agreed, equal, given
from tandemq_server.testing.history import random_history

NOT_TAKEN, NOT_FOUND = "Task was not taken", "Task 0 not found"

# -- states ----------------------------------------------------------------------------------------

#: call -> what becomes of a task that is r, t, !, ~ or missing: a state, or an error's text.
AFTER: dict[str, tuple[str, str, str, str, str]] = {
    "take": ("t", "t", "!", "~", "missing"),
    "ack": (NOT_TAKEN, "missing", NOT_TAKEN, NOT_TAKEN, NOT_TAKEN),
    "release": (NOT_TAKEN, "r", NOT_TAKEN, NOT_TAKEN, NOT_TAKEN),
    "touch": (NOT_TAKEN, "t", NOT_TAKEN, NOT_TAKEN, NOT_TAKEN),
    "bury": ("!", "!", "!", "!", NOT_FOUND),
    "delete": ("missing", "missing", "missing", "missing", NOT_FOUND),
    "kick": ("r", "t", "r", "~", "missing"),
}
STATES = ("r", "t", "!", "~", "missing")
ARGUMENTS: dict[str, tuple[Any, ...]] = {"take": (0, 0), "touch": (0, 1), "kick": ()}


def transition(call: str) -> Callable[[Case], None]:
    def check(case: Case) -> None:
        for state, expected in zip(STATES, AFTER[call], strict=True):
            if state == "~" and not case.driver.delays:
                continue
            for owns in (True, False):
                one = case.again()
                one.bring(state, one.who)
                alone = NOT_TAKEN if call in ("ack", "release", "touch") else expected
                _moved(one, call, state, expected if owns else alone, owns)
                one.done()

    return check


def _moved(case: Case, call: str, state: str, expected: str, owns: bool) -> None:
    who = case.who if owns else case.other
    outcome = case.call(call, who, *ARGUMENTS.get(call, (0,)))
    what = f"{call} of a task in state {state} by {'its owner' if owns else 'somebody else'}"
    if expected in (NOT_TAKEN, NOT_FOUND):
        equal(getattr(outcome, "text", outcome), expected, what)
        equal(case.state(), state, f"the state after {what}")
        return
    if call == "touch" and isinstance(outcome, QueueError):
        # A driver without times refuses, in its own words and for the caller's mistake.
        refused = not outcome.text.startswith("Internal error")
        equal((refused, case.state()), (True, "t"), f"{what}, refused with {outcome.text}")
        return
    if isinstance(outcome, QueueError):
        raise AssertionError(f"{what}: {outcome.text}")
    equal(case.state(), expected, f"the state after {what}")
    held = (case.tube.id, 0) in case.tube.taken.rows
    equal(held, expected == "t", f"whether the task has an owner after {what}")


def a_gone_task_is_shown_done(case: Case) -> None:
    for method in ("ack", "delete"):
        task_id = case.put(b"gone")[0]
        case.call("take", case.who, 0, 0)
        row = case.call(method, case.who, task_id)
        equal((row[0], row[1], row[-1]), (task_id, "-", b"gone"), method)


def a_payload_comes_back_as_it_was_put(case: Case) -> None:
    for data in (b"\xc0", b"\xa1x", b"\xc4\x03\x00\xff\x00", b"\x91" * 200 + b"\x90"):
        row = case.put(data)
        seen = [row, case.call("peek", row[0]), case.call("take", case.who, 0, 0)]
        seen += [case.call("release", case.who, row[0]), case.call("delete", case.who, row[0])]
        equal([(one[0], one[-1]) for one in seen], [(row[0], data)] * 5, "id and payload")
    normal = case.tube.inner.normalize_task
    row = case.put(b"n")
    shown = normal(case.tube.space.rows[row[0]])
    equal(tuple(shown), (row[0], "r", b"n"), "normalize_task")


def ids_never_repeat_but_after_truncate(case: Case) -> None:
    for expected in range(3):
        equal(case.put()[0], expected, "the id of a new task")
        case.call("delete", case.who, expected)
    again = agreed(case.bench)
    again.start()
    who = again.worker()
    options = given(case.puts[0])
    row = again.call(again.engine.tubes["t"].put, who, 0, b"x", options)
    equal(row[0], 3, "the id of the first task after a restart")
    case.call("truncate", case.who)
    equal(case.put()[0], 0, "the id of the first task after truncate")


# -- many tasks ------------------------------------------------------------------------------------


def kick_takes_as_many_as_it_is_told(case: Case) -> None:
    for _ in range(4):
        case.call("bury", case.who, case.put()[0])
    equal([case.call("kick", case.who, count) for count in (0, -3)], [0, 0], "kick of nothing")
    equal(case.call("kick", case.who, 1), 1, "kick of one")
    equal(case.call("kick", case.who, 10), 3, "kick of what is left")
    equal(len(list(case.tube.inner.tasks_by_state("r"))), 4, "ready tasks")


def release_all_frees_everybodys_tasks(case: Case) -> None:
    for _ in range(4):
        case.put()
    for who in (case.who, case.other):
        case.call("take", who, 0, 0)
    equal(case.call("release_all", case.who), EMPTY, "release_all")
    equal(len(list(case.tube.inner.tasks_by_state("r"))), 4, "ready tasks")
    equal(list(case.tube.taken.rows), [], "owners")


def truncate_leaves_nothing(case: Case) -> None:
    other = case.made("other")
    for tube in (case.tube, other):
        case.bench.call(tube.put, case.who, 0, b"x", given(case.puts[0]))
        case.bench.call(tube.take, case.who, 0, 0)
    case.put()
    equal(case.call("truncate", case.who), EMPTY, "truncate")
    equal(dict(case.tube.space.rows), {}, "rows")
    equal(list(case.tube.taken.rows), [(other.id, 0)], "owners")
    equal(sum(case.tube.inner.counts().values()), 0, "counts")


def batches_do_what_single_calls_do(case: Case) -> None:
    one, many = case, case.again()
    items = [(b"%d" % n, dict(case.puts[n % len(case.puts)] or {}) or None) for n in range(4)]
    for data, opts in items:
        one.call("put", one.who, 0, data, opts)
    put = many.bench.call(batches.put_many, many.tube, many.who, items)
    equal(len(put), 4, "put_many")
    equal(many.tube.space.rows, one.tube.space.rows, "rows after put_many")
    rows = [one.call("take", one.who, 0, 0) for _ in range(3)]
    rows = [row for row in rows if row is not EMPTY]
    taken = many.bench.call(batches.take_many, many.tube, many.who, 0, 3)
    equal([row[0] for row in taken], [row[0] for row in rows], "ids of take_many")
    ids = [row[0] for row in rows]
    for task_id in ids:
        one.call("ack", one.who, task_id)
    many.bench.call(batches.ack_many, many.tube, many.who, ids)
    equal(many.tube.space.rows, one.tube.space.rows, "rows after ack_many")
    many.done()


def counts_are_those_of_tasks_by_state(case: Case) -> None:
    for _ in range(4):
        case.put()
    case.call("take", case.who, 0, 0)
    case.call("bury", case.who, next(iter(case.tube.inner.tasks_by_state("r")))[0])
    inner = case.tube.inner
    found = {name: inner.counts()[name] for name in ("ready", "taken", "buried", "delayed")}
    equal(found, {"ready": 2, "taken": 1, "buried": 1, "delayed": 0}, "counts")
    states = {state: len(list(inner.tasks_by_state(state))) for state in "rt!~"}
    equal(states, {"r": 2, "t": 1, "!": 1, "~": 0}, "tasks_by_state")


# -- who waits, what is refused, what is taken back ------------------------------------------------


def who_waits_is_served(case: Case) -> None:
    waits = case.bench.worker()

    def parked(ticket: int) -> None:
        equal(case.call("take", waits, ticket, 5), PENDING, "a take of an empty tube")

    parked(1)
    case.put()
    equal([(ticket, row[:2]) for ticket, row in waits.told], [(1, (0, "t"))], "told after put")
    parked(2)
    case.call("release", waits, 0)
    equal([ticket for ticket, _ in waits.told], [1, 2], "tickets told after release")
    case.call("bury", waits, 0)
    parked(3)
    case.call("kick", case.who, 1)
    equal([ticket for ticket, _ in waits.told], [1, 2, 3], "tickets told after kick")
    parked(4)
    case.bench.disconnect(waits)
    equal(case.state(), "r", "the state of a task whose owner went away")
    case.call("delete", case.who, 0)
    equal(case.call("take", case.other, 5, 5), PENDING, "a take of an empty tube")
    case.bench.pass_time(5)
    equal(case.other.told, [(5, EMPTY)], "told when the wait was over")


def a_full_tube_takes_no_more(case: Case) -> None:
    capacity = case.tube.inner.capacity
    if not capacity:
        return
    for _ in range(capacity):
        case.put()
    opts = {**(case.puts[0] or {}), "timeout": 0}
    equal(case.call("put", case.who, 0, b"x", opts), NIL, "a put beyond the capacity")
    equal(len(case.tube.space.rows), capacity, "tasks")
    case.call("delete", case.who, 0)
    case.put()


def an_unknown_option_changes_nothing(case: Case) -> None:
    case.put()
    before = shared_state(case.bench.engine)["spaces"]
    outcome = case.call("put", case.who, 0, b"x", {"no such option": 1})
    if not isinstance(outcome, QueueError):
        raise AssertionError(f"a put with an unknown option: {outcome!r}")
    equal(shared_state(case.bench.engine)["spaces"], before, "spaces after a refused put")


def a_call_taken_back_leaves_nothing(case: Case) -> None:
    """The driver does its work, then the call fails: what it keeps is what the space holds."""
    for method in ("put", "take", "release", "bury", "kick", "delete", "truncate"):
        one = case.again()
        for _ in range(4):
            one.put()
        one.call("take", one.who, 0, 0)
        held = next(iter(one.tube.inner.tasks_by_state("t")))[0]
        one.call("bury", one.who, next(iter(one.tube.inner.tasks_by_state("r")))[0])
        before = _seen(one.tube)
        _broken_once(one, method, held)
        equal(_seen(one.tube), before, f"what is seen after a {method} that was taken back")
        one.bench.engine.store.check()
        one.done()


def _broken_once(case: Case, method: str, held: int) -> None:
    inner = case.tube.inner
    real = getattr(inner, method)

    def broken(*args: Any) -> Any:
        real(*args)
        raise RuntimeError("broken")

    arguments: dict[str, tuple[Any, ...]] = {
        "put": (0, b"y", given(case.puts[0])),
        "take": (0, 0),
        "kick": (1,),
        "truncate": (),
    }
    setattr(inner, method, broken)
    try:
        outcome = case.call(method, case.who, *arguments.get(method, (held,)))
    finally:
        delattr(inner, method)
    if method != "take" or outcome is not EMPTY:
        equal(getattr(outcome, "text", outcome), "Internal error: RuntimeError: broken", method)


def _seen(tube: EngineTube) -> dict[str, Any]:
    states = {state: list(tube.inner.tasks_by_state(state)) for state in "rt!~"}
    return {**states, "counts": tube.inner.counts(), "rows": dict(tube.space.rows)}


# -- what the space alone decides ------------------------------------------------------------------


def create_space_depends_on_its_arguments_alone(case: Case) -> None:
    opts = dict(case.tube.opts)
    one, two = (case.driver.create_space(900, "twice", dict(opts), False) for _ in range(2))
    for name in ("id", "name", "temporary", "raw"):
        equal(getattr(one, name), getattr(two, name), f"{name} of a space made twice")
    kinds = [[type(index) for index in space.indexes] for space in (one, two)]
    equal(kinds[0], kinds[1], "indexes of a space made twice")
    equal(case.driver.create_space(901, "gone", dict(opts), True).temporary, True, "temporary")


def history(seed: int) -> Callable[[Case], None]:
    def check(case: Case) -> None:
        random_history(case.bench, case.tube, case.puts, seed)
        _served_alike(case)

    return check


def _served_alike(case: Case) -> None:
    """Another engine that knows only the log serves the same tasks in the same order."""
    case.call("release_all", case.who)
    case.call("kick", case.who, 1_000)
    other = agreed(case.bench)
    other.start()
    served = []
    for bench in (case.bench, other):
        tube, who, ids = bench.engine.tubes["t"], bench.worker(), []
        while (row := bench.call(tube.take, who, 0, 0)) is not EMPTY:
            ids.append(row[0])
            bench.call(tube.ack, who, row[0])
        served.append(ids)
    equal(served[1], served[0], "the order a node serves in that knows only the log")
    agreed(other)


# -- the suite -------------------------------------------------------------------------------------

SEEDS = 5
CHECKS: dict[str, Callable[[Case], None]] = {
    **{f"{call}_from_every_state": transition(call) for call in AFTER},
    **{
        check.__name__: check
        for check in (
            a_gone_task_is_shown_done,
            a_payload_comes_back_as_it_was_put,
            ids_never_repeat_but_after_truncate,
            kick_takes_as_many_as_it_is_told,
            release_all_frees_everybodys_tasks,
            truncate_leaves_nothing,
            batches_do_what_single_calls_do,
            counts_are_those_of_tasks_by_state,
            who_waits_is_served,
            a_full_tube_takes_no_more,
            an_unknown_option_changes_nothing,
            a_call_taken_back_leaves_nothing,
            create_space_depends_on_its_arguments_alone,
        )
    },
    **{f"history_{seed}": history(seed) for seed in range(SEEDS)},
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one driver. Calling it raises AssertionError, or what the driver raised."""

    name: str
    driver: type[Driver]
    options: Options
    puts: Sequence[Options]

    def __str__(self) -> str:
        return self.name

    def __call__(self) -> None:
        name = self.driver.name or "mine"
        case = Case(self.driver, name, self.options, self.puts)
        CHECKS[self.name](case)
        case.done()


def driver_checks(
    driver: type[Driver], *, options: Options = None, puts: Sequence[Options] = (None,)
) -> list[Check]:
    """The suite as single checks, for a test runner that shows each: `pytest.mark.parametrize`.

    Arguments as of `driver_conformance`. Raises DriverMisuse for what is no driver at all.
    """
    check_driver(getattr(driver, "name", "") or "mine", driver)
    if not puts:
        raise ValueError("puts: at least one set of options, or None, is needed")
    return [Check(name, driver, options, puts) for name in CHECKS]


def driver_conformance(
    driver: type[Driver], *, options: Options = None, puts: Sequence[Options] = (None,)
) -> None:
    """Hold a driver against the contract; return if it keeps all of it.

    options: of `create_tube`; a tube must hold four tasks or more. puts: options of put, used in
    turn; a task put with them is ready at once, and no deadline of it may come within ten seconds.
    Raises ExceptionGroup with one exception for each check that failed, the check's name as its
    note; DriverMisuse for what is no driver at all.
    """
    failed: list[Exception] = []
    for check in driver_checks(driver, options=options, puts=puts):
        try:
            check()
        except Exception as error:
            error.add_note(f"check: {check.name}")
            failed.append(error)
    if failed:
        raise ExceptionGroup(f"{driver.__name__} does not keep the contract of drivers", failed)
