"""The queue15 calls on an engine with a virtual clock, arguments and replies as on the wire.

What they must do belongs into the tests.
"""

from __future__ import annotations

from typing import Any

import msgpack

from tandemq.model.errors import QueueError
from tandemq.model.raw import Raw
from tandemq_server.engine.clients import EMPTY
from tandemq_server.engine.lanes import LaneTube
from tandemq_server.facades.queue15 import spaces as queue15
from tandemq_server.facades.queue15.spaces import Space15
from tandemq_server.facades.registered import KNOWN
from tests.engine.engine_bench import Bench, Worker

PRODUCERS = ("put", "urgent", "put_unique")


def seen(outcome: Any) -> Any:
    """A reply as a client reads it: None for an empty one, `! text` for an error."""
    if isinstance(outcome, Raw):
        return msgpack.unpackb(outcome.data, unicode_errors="surrogateescape")
    if isinstance(outcome, QueueError):
        return f"! {outcome.text}"
    return None if outcome is EMPTY else outcome


class Calls:
    """`calls("put", "tube", 0, 0, 0, 0, "data")`: on space 0, by a worker of the bench."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.me = bench.worker()

    def __call__(self, name: str, *args: Any, by: Worker | None = None, space: Any = 0) -> Any:
        client = by or self.me
        engine = self.bench.engine

        def run() -> Any:
            if name == "statistics":
                return queue15.statistics(engine, client, space, *args)
            one = Space15(engine, client, space)
            if name in PRODUCERS:
                values = [*args[:5], *[None] * (5 - len(args))]
                data = msgpack.packb(list(args[5:]))
                if name == "put_unique":
                    return one.put_unique(values, data)
                return one.put(values, data, urgent=name == "urgent")
            if name == "done":
                return one.done(args[0], msgpack.packb(list(args[1:])))
            if name == "take":
                return one.take("ticket", args[0], args[1] if len(args) > 1 else None)
            return getattr(one, name)(*args)

        return seen(self.bench.call(run))

    def put(self, tube: str = "t", *data: Any, delay: Any = 0, ttl: Any = 0, ttr: Any = 0,
            pri: Any = 0) -> str:  # fmt: skip
        """Put a task; its id."""
        reply = self("put", tube, delay, ttl, ttr, pri, *data)
        assert isinstance(reply, list), reply
        return str(reply[0])

    def drain(self, tube: str = "t") -> list[Any]:
        """First data fields of everything ready, in the order it is served."""
        found = []
        while (task := self("take", tube, 0)) is not None:
            found.append(task[3])
        return found

    def counters(self, tube: str = "t") -> dict[str, int]:
        flat = self("statistics", tube)
        start = f"space0.{tube}."
        return {
            name.removeprefix(start): int(value)
            for name, value in zip(flat[::2], flat[1::2], strict=True)
        }

    def status(self, ident: str) -> str:
        reply = self("peek", ident)
        return reply[2] if isinstance(reply, list) else reply

    @property
    def tube(self) -> LaneTube:
        tube = self.bench.engine.tubes["space0"]
        assert isinstance(tube, LaneTube)
        return tube


def make(bench: Bench | None = None, **opts: Any) -> Calls:
    """A serving engine with a space 0."""
    bench = bench or Bench(KNOWN)
    if not bench.engine.running:
        bench.start()
    if "space0" not in bench.engine.tubes:
        bench.create("space0", "queue15", **opts)
    return Calls(bench)
