"""A node's engine and log for scenes: like the log maker's, with sessions, records and lanes.

What happens here happened in the real engine and stands in a real log; only time is made up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack

from benchmarks.logmaker import CLUSTER, Consumer, LogMaker
from tandemq.log.snapshot import SnapshotHeader
from tandemq.model.raw import Raw
from tandemq.model.terms import Term
from tandemq_server.engine import admin, attempts, batches, finish, importing, pause
from tandemq_server.engine import by_hand as operator
from tandemq_server.engine.clients import Values
from tandemq_server.engine.tube import EngineTube
from tandemq_server.facades.queue15.spaces import Space15
from tandemq_server.storage.snapshot_writer import SnapshotWriter

SECOND = 1_000_000
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


class Waiting(Consumer):
    """A connection whose calls may wait."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.told: list[Any] = []

    def deliver(self, ticket: Any, outcome: Any) -> None:
        self.told.append(outcome)


class Stage(LogMaker):
    """Calls by number of the client."""

    def __init__(
        self, directory: Path, node: int = 1, seed: int = 0, replicaset: bool = True
    ) -> None:
        super().__init__(directory, node, seed)
        self.clients = [Waiting(number) for number in range(1, 9)]
        self.open_term()
        if replicaset:
            admin.cfg(self.engine, {"ttr": 60, "in_replicaset": True})
        self.turn()

    def wait(self, seconds: float) -> None:
        """Time goes by, a deadline at a time."""
        until = self.engine.now + int(seconds * SECOND)
        self.turn(0)
        while (due := self.engine.next_due()) is not None and due <= until:
            self.engine.now = max(self.engine.now, due)
            self.engine.tick()
            self.turn(0)
        self.engine.now = until
        self.turn(0)

    def done(self, value: Any = None) -> Any:
        self.engine.wake()
        self.turn()
        return value

    # -- tasks -------------------------------------------------------------------------------------

    def acked(self, tube: EngineTube, client: int = 1) -> int | None:
        """Take and ack one task."""
        task = self.take(tube, client)
        self.done()
        if task is not None:
            tube.ack(self.clients[client], task)
            self.done()
        return task

    def many(self, tube: EngineTube, items: list[tuple[Any, dict[str, Any] | None]]) -> list[int]:
        packed = [(msgpack.packb(value), opts) for value, opts in items]
        return self.done(batches.put_many(tube, self.clients[0], packed))  # type: ignore[no-any-return]

    def take_many(self, tube: EngineTube, count: int, client: int = 1) -> list[int]:
        rows = batches.take_many(tube, self.clients[client], None, count)
        return self.done([row[0] for row in rows])  # type: ignore[no-any-return,union-attr]

    def leave(self, client: int) -> None:
        """A connection goes."""
        self.engine.disconnect(self.clients[client])
        self.done()

    def identify(self, client: int, session: bytes | None = None) -> bytes:
        return self.done(self.engine.sessions.identify(self.clients[client], session))  # type: ignore[no-any-return]

    def promote(self, ttr: float | None = None) -> None:
        """The node ends its leadership and begins another one: nobody is connected."""
        for client in self.clients:
            client.session = None
        self.engine.sessions.members.clear()
        self.engine.stop()
        self.write(self.engine.take_records())
        parent = self.term.id
        number = self.term.number + 1
        term_id = bytes([number]) * 8 + self.random.randbytes(8)
        self.term = Term(number, term_id, parent, self.log.last_lsn + 1, "a", False)
        self.log.open_term(self.term, self.log.last_lsn + 1)
        self.engine.promote(self.term, ttr, None)
        self.engine.running = True
        self.turn()

    def snapshot(self) -> None:
        """Write a snapshot of the present state, all of it at once."""
        self.turn()
        write_snapshot(self)

    # -- records and lanes -------------------------------------------------------------------------

    def records(self, name: str, text: bool = False, **features: Any) -> Any:
        opts = {"format": TEXT_FORMAT if text else FORMAT, "fields": FIELDS,
                "features": {**ALL, **features}}  # fmt: skip
        return self.done(admin.create_tube(self.engine, name, "xqueue", opts))

    def x(self, tube: Any, call: str, *args: Any, client: int = 1) -> Any:
        """A call of xqueue; the key of the record it answers with."""
        names = {"dig": "dig", "kill": "kill"}
        method = getattr(tube, names.get(call, f"{call}_record"))
        ticket = (None,) if call in ("put", "take") else ()
        found = method(self.clients[client], *ticket, *args)
        self.done()
        if isinstance(found, Values) and found and isinstance(found[0], dict):
            return found[0]["id"]
        return None

    def put_x(self, tube: Any, opts: Any = None, **task: Any) -> Any:
        return self.x(tube, "put", {"priority": 0, "tube": "a", "payload": "p", **task}, opts)

    def lanes(self) -> Space15:
        admin.create_tube(self.engine, "space0", "queue15", {})
        self.turn()
        return self.lane(0)

    def lane(self, client: int) -> Space15:
        return Space15(self.engine, self.clients[client], 0)

    def q15(self, client: int, call: str, *args: Any) -> Any:
        """A call of queue15; the id of the task it answers with."""
        found = getattr(self.lane(client), call)(*args)
        self.done()
        if isinstance(found, Raw):
            return msgpack.unpackb(found.data)[0]
        return found

    def put15(self, lane: str = "t", delay: Any = 0, ttl: Any = 0, ttr: Any = 0, pri: Any = 0,
              urgent: bool = False) -> str:  # fmt: skip
        found = self.lane(0).put([lane, delay, ttl, ttr, pri], msgpack.packb(["x"]), urgent)
        self.done()
        return str(msgpack.unpackb(found.data)[0])

    def take15(self, lane: str = "t", client: int = 1) -> Any:
        found = self.lane(client).take(None, lane, 0)
        self.done()
        return msgpack.unpackb(found.data)[0] if isinstance(found, Raw) else None


def write_snapshot(stage: Stage) -> str:
    """The state at the log's end as a snapshot file; its name."""
    lsn, store = stage.log.last_lsn, stage.engine.store
    terms = tuple(store.lineage)
    header = SnapshotHeader(stage.meta.cluster, stage.meta.node, terms, lsn)
    writer = SnapshotWriter(stage.disk, header)
    writer.add_catalogue(store.catalogue())
    for space_id, rows in store.rows_for_snapshot(1000):
        writer.add_rows(space_id, rows)
    return writer.finish(lsn, stage.engine.now)


__all__ = ["CLUSTER", "SECOND", "Stage", "attempts", "finish", "importing", "operator", "pause"]
