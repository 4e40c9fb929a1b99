"""Logs for measuring and testing the pipeline, written by the real engine and the real log.

Only time is made up: a clock that moves as fast as the caller says. A fault can be planted as a
raw record, which no engine would write.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgpack

from tandemq.log.meta import open_meta
from tandemq.model.record import Record, encode_frame
from tandemq.model.terms import Term
from tandemq_server.engine import batches
from tandemq_server.engine.clients import EngineClient
from tandemq_server.engine.engine import Engine
from tandemq_server.engine.tube import EngineTube
from tandemq_server.facades.registered import KNOWN
from tandemq_server.storage.files import FileDisk
from tandemq_server.storage.log import SEGMENT_BYTES, Log
from tandemq_server.storage.recovery import open_log, recover

CLUSTER = bytes(range(16))
START_US = 1_750_000_000_000_000


class Consumer(EngineClient):
    """A connection nobody waits on."""

    def deliver(self, ticket: Any, outcome: Any) -> None:
        raise AssertionError("nothing waits here")


class _Nothing:
    """Takes what recovery finds and keeps none of it: only the log's end matters."""

    def catalogue(self, ops: Any) -> None: ...
    def rows(self, space_id: int, rows: Any) -> None: ...
    def records(self, first_lsn: int, records: Any, lenient: bool, term: Any) -> None: ...


class LogMaker:
    """One node's directory and an engine that writes into it; `turn` ends an event-loop turn."""

    def __init__(
        self, directory: Path, node: int = 1, seed: int = 0, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.disk = FileDisk(directory)
        node_id = bytes([node]) * 16
        self.meta = open_meta(self.disk, CLUSTER, node_id, START_US)
        self.log: Log = open_log(self.disk, recover(self.disk, _Nothing()), segment_bytes)
        self.engine = Engine(KNOWN, lambda: self.random.randbytes(16), print)
        self.engine.now = START_US
        self.engine.lsn = self.log.last_lsn
        self.term: Term | None = None
        self.clients = [Consumer(number) for number in range(1, 5)]

    def open_term(self, number: int = 1, node: str = "a", parent: bytes | None = None) -> None:
        term_id = bytes([number]) * 8 + self.random.randbytes(8)
        if parent is None and self.term is not None:
            parent = self.term.id
        self.term = Term(number, term_id, parent, self.log.last_lsn + 1, node, False)
        self.log.open_term(self.term, self.log.last_lsn + 1)
        self.engine.promote(self.term, None, None)
        self.engine.running = True
        self.turn()

    def tube(self, name: str, kind: str = "fifo", **opts: Any) -> EngineTube:
        from tandemq_server.engine import admin

        made = admin.create_tube(self.engine, name, kind, opts)
        self.turn()
        return made

    def turn(self, pass_us: int = 1000) -> None:
        """Write what was committed since the last turn as one frame; the clock moves on."""
        self.write(self.engine.take_records())
        self.engine.now += pass_us
        self.engine.tick()

    def write(self, records: list[Record]) -> None:
        """Records as one frame, whoever made them up."""
        if not records:
            return
        first = self.log.last_lsn + 1
        number, term_id = self.term[0], self.term[1]
        frame = encode_frame(records, number, term_id, first, first - 1)
        self.log.append(frame, first, first + len(records) - 1, records[-1][0])

    def put(self, tube: EngineTube, value: Any, client: int = 0, **opts: Any) -> int:
        row = tube.put(self.clients[client], None, msgpack.packb(value), opts or None)
        return int(row[0])  # type: ignore[index]

    def take(self, tube: EngineTube, client: int = 1) -> int | None:
        row = tube.take(self.clients[client], None, 0)
        return int(row[0]) if isinstance(row, tuple) else None

    def put_many(self, tube: EngineTube, values: list[Any], client: int = 0) -> list[int]:
        items: list[tuple[bytes, Any]] = [(msgpack.packb(value), None) for value in values]
        return batches.put_many(tube, self.clients[client], items)

    def commit(self) -> None:
        self.log.sync()
        self.log.publish_commit(self.log.last_lsn)

    def close(self) -> None:
        self.commit()
        self.log.close()
        self.disk.release()


def fill(maker: LogMaker, operations: int, per_turn: int = 128, payload: int = 40) -> None:
    """About so many operations of an ordinary day: three tubes, most tasks acked at once."""
    choose = maker.random
    tubes = [
        maker.tube("orders", "fifo"),
        maker.tube("mail", "fifottl", ttr=60),
        maker.tube("crawl", "utube"),
    ]
    text = "x" * payload
    held: list[tuple[EngineTube, int, int]] = []
    done = turn = 0
    while done < operations:
        for _ in range(per_turn // 3):
            tube = tubes[choose.randrange(3)]
            number = done + len(held)
            opts = {"utube": f"host{number % 50}"} if tube.name == "crawl" else {}
            maker.put(tube, {"n": number, "body": text}, **opts)
            client = choose.randrange(1, 4)
            task = maker.take(tube, client)
            if task is not None:
                held.append((tube, task, client))
            done += 2
        maker.turn(per_turn * 50)
        for tube, task, client in held:
            chance = choose.random()
            owner = maker.clients[client]
            if chance < 0.02:
                tube.release(owner, task)
            elif chance < 0.025:
                tube.bury(owner, task)
            else:
                tube.ack(owner, task)
            done += 1
        held.clear()
        turn += 1
        maker.turn(per_turn * 50)
