"""Drivers that fail once, in the middle of a call, after they changed something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tandemq_server.engine import attempts, batches
from tandemq_server.engine.finish import finish
from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import Worker
from tests.property import naive_model as naive

#: What whoever meets the fault is told.
BROKEN = "Internal error: RuntimeError: broken"
#: A call, and the driver's method that fails in it: if the call comes to ask for that one at all.
FAULTS = (
    ("put", "put"),
    ("put", "take"),
    ("put_many", "put"),
    ("take", "take"),
    ("take_many", "take"),
    ("ack", "delete"),
    ("ack", "put"),
    ("ack_many", "delete"),
    ("finish", "delete"),
    ("finish", "put"),
    ("release", "release"),
    ("release", "bury"),
    ("release", "delete"),
    ("release", "put"),
    ("release", "take"),
    ("release_many", "release"),
    ("release_many", "put"),
    ("release_all", "release"),
    ("release_all", "bury"),
    ("release_all", "delete"),
    ("bury", "bury"),
    ("kick", "kick"),
    ("touch", "touch"),
    ("delete", "delete"),
    ("delete", "put"),
    ("truncate", "truncate"),
    ("redrive", "put"),
    ("redrive", "delete"),
)
NEED_TAKEN = (
    "ack",
    "ack_many",
    "finish",
    "release",
    "release_many",
    "release_all",
    "touch",
    "bury",
)
#: Calls that change several tasks in one transaction: the second one may be what fails.
OF_MANY = ("put_many", "ack_many", "finish", "release_many", "release_all", "kick", "redrive")
#: The same call of the engine and of the model.
Both = tuple[tuple[Any, ...], tuple[Any, ...]]


class Fault:
    """`with Fault(tube, "put")`: the tube's driver fails in its next put, or batch of puts.

    spared: so many of them go well before.
    in_call: whether that happened in the call itself, not as those were served whom it woke.
    """

    def __init__(self, tube: EngineTube, method: str, spared: int = 0) -> None:
        driver: Any = tube.inner
        self.spared = spared
        self.driver = driver
        self.methods = [name for name in (method, f"{method}_many") if hasattr(driver, name)]
        self.real = {name: getattr(driver, name) for name in self.methods}
        self.met = self.in_call = False

    def __enter__(self) -> Self:
        for name in self.methods:
            setattr(self.driver, name, self.failing(self.real[name]))
        return self

    def __exit__(self, *_error: object) -> None:
        for name in self.methods:
            delattr(self.driver, name)

    def failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def method(*args: Any) -> Any:
            found = real(*args)
            if self.met or self.spared:
                self.spared = max(0, self.spared - 1)
                return found
            self.met = True
            raise RuntimeError("broken")

        return method

    def during(self, operation: Callable[..., Any], *args: Any) -> Any:
        try:
            return operation(*args)
        finally:
            self.in_call = self.met


def both(
    call: str,
    real: tuple[EngineTube, Worker],
    simple: tuple[naive.Model, naive.Tube, naive.Connection],
    task_id: int,
    into: tuple[EngineTube, naive.Tube],
) -> Both:
    """One of the calls of FAULTS; `into`: where a finish puts, beside its own tube."""
    tube, worker = real
    model, simply, conn = simple
    if call in ("put", "put_many", "finish"):
        return both_that_put(call, real, simple, task_id, into)
    mine = [t.id for t in simply.tasks.values() if t.owner is not None and t.owner is conn.session]
    calls: dict[str, Both] = {
        "take": ((tube.take, worker, 0, 0), (model.take, conn, simply, 0, 0)),
        "take_many": (
            (batches.take_many, tube, worker, 0, 2, 0),
            (model.take_many, conn, simply, 0, 2, 0),
        ),
        "ack": ((tube.ack, worker, task_id), (model.ack, conn, simply, task_id)),
        "ack_many": (
            (batches.ack_many, tube, worker, mine),
            (model.batch, conn, simply, mine, True, None),
        ),
        "release": (
            (tube.release, worker, task_id),
            (model.release, conn, simply, task_id, None),
        ),
        "release_many": (
            (batches.release_many, tube, worker, mine),
            (model.batch, conn, simply, mine, False, None),
        ),
        "release_all": ((tube.release_all, worker), (model.release_all, simply)),
        "bury": ((tube.bury, worker, task_id), (model.bury, simply, task_id)),
        "kick": ((tube.kick, worker, 3), (model.kick, simply, 3)),
        "touch": ((tube.touch, worker, task_id, 1), (model.touch, conn, simply, task_id, 1)),
        "delete": ((tube.delete, worker, task_id), (model.delete, simply, task_id)),
        "truncate": ((tube.truncate, worker), (model.truncate, simply)),
        "redrive": (
            (attempts.redrive, tube, worker, None, None, lambda _name: None),
            (model.redrive, simply, None, None),
        ),
    }
    return calls[call]


def both_that_put(
    call: str,
    real: tuple[EngineTube, Worker],
    simple: tuple[naive.Model, naive.Tube, naive.Connection],
    task_id: int,
    into: tuple[EngineTube, naive.Tube],
) -> Both:
    tube, worker = real
    model, simply, conn = simple
    if call == "put":
        return (tube.put, worker, 0, b"x", {}), (model.put, conn, simply, 0, b"x", {})
    if call == "put_many":
        items: list[tuple[bytes, dict[str, Any]]] = [(b"x", {"key": "a"}), (b"y", {})]
        return (batches.put_many, tube, worker, items), (model.put_many, simply, items)
    return (
        (finish, tube, worker, task_id, [(tube, b"y", {"key": "b"}), (into[0], b"x", {})]),
        (
            model.finish,
            conn,
            simply,
            task_id,
            [(simply, b"y", {"key": "b"}), (into[1], b"x", {})],
        ),
    )
