"""Dramatiq on Tandem and on Redis."""

from __future__ import annotations

from typing import Any

import dramatiq

from benchmarks.frameworks.load import BROKER, PAYLOAD, URL, begun, produce_blocking


def make() -> Any:
    """The broker BROKER names."""
    if BROKER == "tandem":
        from tandemq.dramatiq import TandemBroker

        return TandemBroker(URL)
    from dramatiq.brokers.redis import RedisBroker

    return RedisBroker(url=URL)


broker = make()
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="notes")
def note(sent_ns: int, _payload: str) -> None:
    """Nothing but the note."""
    begun(sent_ns)


if __name__ == "__main__":
    produce_blocking(lambda sent_ns: note.send(sent_ns, PAYLOAD))
    broker.close()
