"""An engine under test: a virtual clock, clients that remember what they were told, its whole log.

What an engine must do belongs into the tests; this only drives it the way a node does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tandemq.model.errors import QueueError, failure
from tandemq.model.record import Record, decode_body, encode_frame, frame_body
from tandemq.model.record import decode_header as header_of
from tandemq_server.drivers import BUILT_IN, Driver
from tandemq_server.engine import admin
from tandemq_server.engine.clients import EngineClient
from tandemq_server.engine.engine import Engine
from tandemq_server.engine.session_times import TIMER_SESSION
from tandemq_server.engine.tube import EngineTube

SECOND = 1_000_000
EPOCH = 1_700_000_000 * SECOND
TERM_ID = b"term-of-the-test"


class Worker(EngineClient):
    """A connection. told: (ticket, outcome) of every parked call that came to an end."""

    def __init__(self, client_id: int) -> None:
        super().__init__(client_id)
        self.told: list[tuple[Any, Any]] = []

    def deliver(self, ticket: Any, outcome: Any) -> None:
        self.told.append((ticket, outcome))


def through_the_wire(records: list[Record]) -> list[Record]:
    """Records as a log or a replica gives them back."""
    if not records:
        return []
    frame = encode_frame(records, 1, TERM_ID, 1, 0)
    header = header_of(frame)
    return decode_body(frame_body(frame, 0, header, TERM_ID), header.count)


class Bench:
    """An engine and everything it ever logged.

    log: all records so far, as they came back from their encoding. reports: lines for the node's
    log. `call` runs one operation like the node does: an error is returned and rolled back, then
    those who wait are served.
    """

    def __init__(
        self,
        drivers: Mapping[str, type[Driver]] = BUILT_IN,
        log: list[Record] | None = None,
        now: int = EPOCH,
        name: bytes = b"node",
    ) -> None:
        self.reports: list[str] = []
        self.drivers = drivers
        self.name = name
        self.uuids = 0
        self.workers = 0
        self.engine = Engine(drivers, self._new_uuid, self._report)
        self.engine.now = now
        self.log: list[Record] = []
        if log is not None:
            self.log = list(log)
            for record in log:
                self.engine.store.apply(record[3])

    def _report(self, text: str, _error: BaseException | None = None) -> None:
        assert "\n" not in text
        self.reports.append(text)

    def _new_uuid(self) -> bytes:
        self.uuids += 1
        return self.name.rjust(8, b"-")[:8] + self.uuids.to_bytes(8, "big")

    def start(self) -> int:
        released = self.engine.start()
        self.collect()
        return released

    def collect(self) -> None:
        self.log += through_the_wire(self.engine.take_records())

    def worker(self) -> Worker:
        self.workers += 1
        return Worker(self.workers)

    def create(self, name: str, kind: str, **opts: Any) -> EngineTube:
        tube = self.call(admin.create_tube, self.engine, name, kind, opts)
        assert isinstance(tube, EngineTube), tube
        return tube

    def call(self, operation: Callable[..., Any], *args: Any, **named: Any) -> Any:
        engine = self.engine
        assert not engine.store.ops, "an earlier call left changes behind"
        assert not engine.store.undo
        try:
            outcome = operation(*args, **named)
        except QueueError as error:
            engine.store.rollback()
            outcome = error
        except Exception as error:
            engine.store.rollback()
            outcome = failure(f"Internal error: {type(error).__name__}: {error}")
        engine.wake()
        assert not engine.store.ops, f"{operation} did not commit"
        self.collect()
        return outcome

    def pass_time(self, seconds: float) -> None:
        self.engine.now += round(seconds * SECOND)
        self.call(self.engine.tick)

    def disconnect(self, worker: Worker) -> None:
        self.call(self.engine.disconnect, worker)

    def replica(self, drivers: Mapping[str, type[Driver]] | None = None) -> Bench:
        """A second node that applied everything this one logged."""
        self.collect()
        return Bench(drivers or self.drivers, self.log, self.engine.now, b"other")


def shared_state(engine: Engine) -> dict[str, Any]:
    """What has to be equal on a master and on its replicas."""
    spaces = {
        space.name: (space.id, space.rows, space.next_id, space.driver, space.opts)
        for space in engine.store.spaces.values()
        if not space.temporary
    }
    shared = {space.id for space in engine.store.spaces.values() if not space.temporary}
    if engine.in_replicaset:
        shared.add(TIMER_SESSION)
    return {
        "spaces": spaces,
        "tubes": {name: (tube.id, tube.type, tube.opts) for name, tube in engine.tubes.items()},
        "timers": [entry for entry in engine.store.timers if entry[1] in shared],
        "settings": (engine.in_replicaset, engine.ttr_us, engine.ttr_s),
        "lineage": engine.store.lineage,
    }


def assert_replica_agrees(bench: Bench) -> Bench:
    """Everything logged, applied elsewhere, gives an equal state, indexes and timers included."""
    bench.engine.store.check()
    other = bench.replica()
    other.engine.store.check()
    assert shared_state(other.engine) == shared_state(bench.engine)
    return other


def text(outcome: Any) -> str:
    """The text of a refusal."""
    assert isinstance(outcome, QueueError), f"expected an error, got {outcome!r}"
    return outcome.text
