"""Taskiq on Tandem, on a stream of Redis (acknowledged), and on a list of Redis (not)."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.frameworks.load import BROKER, PAYLOAD, URL, begun, produce


def make() -> Any:
    """The broker BROKER names."""
    if BROKER == "tandem":
        from tandemq.taskiq import TandemBroker

        return TandemBroker(URL)
    from taskiq_redis import ListQueueBroker, RedisStreamBroker

    kind = RedisStreamBroker if BROKER == "redis-stream" else ListQueueBroker
    return kind(URL)


broker = make()


@broker.task("note")
async def note(sent_ns: int, _payload: str) -> None:
    """Nothing but the note."""
    begun(sent_ns)


async def main() -> None:
    """Produce."""
    await broker.startup()
    await produce(lambda sent_ns: note.kiq(sent_ns, PAYLOAD))
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
