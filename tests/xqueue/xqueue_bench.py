"""xqueue calls on an engine with a virtual clock; what they must do belongs into the tests."""

from __future__ import annotations

from typing import Any

from tandemq.model.errors import QueueError
from tandemq_server.engine.clients import EMPTY, PENDING, Values
from tandemq_server.facades.registered import KNOWN
from tandemq_server.facades.xqueue.tube import RecordTube
from tests.engine.engine_bench import Bench, Worker

EPOCH_S = 1_700_000_000
FORMAT = [
    {"name": "id", "type": "unsigned"},
    {"name": "status", "type": "string"},
    {"name": "runat", "type": "number"},
    {"name": "priority", "type": "number"},
    {"name": "tube", "type": "string"},
    {"name": "payload", "type": "any"},
]
TEXT_FORMAT = [{"name": "id", "type": "string"}, *FORMAT[1:]]
FIELDS = {"status": "status", "runat": "runat", "priority": "priority", "tube": "tube"}
ALL = {"id": "time64", "delayed": True, "buried": True, "ttl": True, "ttr": True}
WITH_TICKET = ("put", "take", "wait")
METHODS = {
    "put": "put_record",
    "take": "take_record",
    "ack": "ack_record",
    "release": "release_record",
    "bury": "bury_record",
    "touch": "touch_record",
    "dig": "dig",
    "kick": "dig",
    "kill": "kill",
    "wait": "wait_record",
    "stats": "stats",
    "truncate": "truncate",
}


def options(features: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"format": FORMAT, "fields": FIELDS, "features": {**ALL, **(features or {})}, **more}


def seen(outcome: Any) -> Any:
    """A reply as a client reads it: None for nothing, `! text` for an error, else its values."""
    if isinstance(outcome, QueueError):
        return f"! {outcome.text}"
    if outcome is EMPTY:
        return None
    if isinstance(outcome, Values):
        return outcome[0] if len(outcome) == 1 else list(outcome)
    return outcome


class Calls:
    """`calls("put", {...}, {...})` on one tube, by a worker of the bench."""

    def __init__(self, features: dict[str, Any] | None = None, **more: Any) -> None:
        self.bench = Bench(KNOWN)
        self.bench.start()
        self.bench.create("q", "xqueue", **options(features, **more))
        self.me = self.bench.worker()
        self.tickets = 0

    @property
    def tube(self) -> RecordTube:
        found = self.bench.engine.tubes["q"]
        assert isinstance(found, RecordTube)
        return found

    def __call__(self, name: str, *args: Any, by: Worker | None = None) -> Any:
        worker = by or self.me
        call = getattr(self.tube, METHODS[name])
        if name == "stats":
            return seen(self.bench.call(call, *args))
        if name in WITH_TICKET:
            self.tickets += 1
            return seen(self.bench.call(call, worker, self.tickets, *args))
        return seen(self.bench.call(call, worker, *args))

    def put(self, opts: Any = None, **task: Any) -> Any:
        fields = {"priority": 0, "tube": "a", **task}
        return self("put", fields, opts)

    def state(self, key: Any) -> str:
        row = self.tube.space.rows.get(key)
        return "X" if row is None else self.tube.records.layout.view(row)[1]

    def told(self, worker: Worker | None = None) -> list[Any]:
        return [seen(outcome) for _, outcome in (worker or self.me).told]


__all__ = ["PENDING", "Calls", "options", "seen"]
