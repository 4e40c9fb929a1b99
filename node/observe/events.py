"""Events of a node to any number of listeners: bounded queues, resumption, no one slows another.

Here: the bus a backend publishes on. Not here: HTTP (see stream.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from tandemq_server.node.observe.answers import EventKind, NodeStatus, Peer

#: Events kept for those who come back with the id of the last one they saw.
KEEP = 256
#: Events one listener may be behind before it is given the present state instead.
QUEUE_MAX = 64
#: What changes all the time is told in `lag`, not in `peers`.
_VOLATILE = ("lag", "lsn", "durable_lsn", "heard_seconds", "clock_offset_seconds")


@dataclass(frozen=True, slots=True)
class BusEvent:
    """`id` is `<epoch>-<number>`, empty for what is not worth resuming from; data is JSON-able."""

    id: str
    kind: EventKind
    data: dict[str, Any]


class Subscription:
    """An async iterator of one listener's events; ends when the bus closes. `close()` it."""

    def __init__(self, bus: EventBus, backlog: list[BusEvent], queue_max: int) -> None:
        self._bus = bus
        self._queue_max = queue_max
        self._queue: deque[BusEvent] = deque(backlog)
        self._arrived = asyncio.Event()
        self._closed = False
        self._skipped = 0
        if backlog:
            self._arrived.set()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> BusEvent:
        await self._arrived.wait()
        if not self._queue:
            raise StopAsyncIteration
        event = self._queue.popleft()
        if not self._queue:
            self._skipped = 0
            if not self._closed:
                self._arrived.clear()
        return event

    def offer(self, event: BusEvent) -> None:
        """Queue an event; one too many and the whole queue gives way to the present state."""
        if self._closed:
            return
        if len(self._queue) >= self._queue_max:
            self._skipped += sum(1 for queued in self._queue if queued.kind != "reset")
            self._queue.clear()
            self._queue.append(BusEvent("", "reset", {"skipped": self._skipped}))
            self._queue.extend(self._bus.present())
        else:
            self._queue.append(event)
        self._arrived.set()

    def end(self) -> None:
        """No more events come; what is queued is still delivered."""
        self._closed = True
        self._arrived.set()

    def close(self) -> None:
        """The listener has gone."""
        self._queue.clear()
        self.end()
        self._bus.forget(self)


class EventBus:
    """Publishes to all subscriptions and remembers the last event of each kind.

    epoch: differs with every start of the process, so that ids of another life are not resumed.
    """

    def __init__(self, epoch: str, keep: int = KEEP, queue_max: int = QUEUE_MAX) -> None:
        assert queue_max > len(EventKind.__args__)  # type: ignore[attr-defined]
        self.epoch = epoch
        self.queue_max = queue_max
        self.number = 0
        self.closed = False
        self._present: dict[EventKind, BusEvent] = {}
        self._kept: deque[BusEvent] = deque(maxlen=keep)
        self._subscriptions: dict[Subscription, None] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def publish(self, kind: EventKind, data: dict[str, Any]) -> None:
        """Tell everybody, whether or not it is news."""
        self.number += 1
        event = BusEvent(f"{self.epoch}-{self.number}", kind, data)
        self._kept.append(event)
        # Re-inserted, so that the present state stays in the order of its ids.
        self._present.pop(kind, None)
        self._present[kind] = event
        for subscription in list(self._subscriptions):
            subscription.offer(event)

    def tell(self, kind: EventKind, data: dict[str, Any]) -> None:
        """News that is stale a second later: told to who listens now, never resumed from."""
        event = BusEvent("", kind, data)
        for subscription in list(self._subscriptions):
            subscription.offer(event)

    def observe(self, status: NodeStatus) -> None:
        """Publish what differs from what was last published: call it on change and on heartbeat."""
        for kind, data in _events_of(status).items():
            last = self._present.get(kind)
            if last is None or last.data != data:
                self.publish(kind, data)

    def present(self) -> list[BusEvent]:
        """The last event of each kind, oldest first."""
        return list(self._present.values())

    def subscribe(self, last_event_id: str | None = None) -> Subscription:
        """What came after `last_event_id` if that is known, else the present state; then news."""
        missed = self._since(last_event_id)
        backlog = self.present() if missed is None else missed
        subscription = Subscription(self, backlog, self.queue_max)
        if self.closed:
            subscription.end()
        else:
            self._subscriptions[subscription] = None
        return subscription

    def _since(self, last_event_id: str | None) -> list[BusEvent] | None:
        epoch, dash, text = (last_event_id or "").rpartition("-")
        if not dash or epoch != self.epoch or not (text.isascii() and text.isdigit()):
            return None
        if len(text) > 20 or int(text) > self.number:
            return None
        missing = self.number - int(text)
        if missing > min(len(self._kept), self.queue_max):
            return None
        return list(self._kept)[len(self._kept) - missing :]

    def forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)

    def close(self) -> None:
        """The node ends: every subscription ends after what it still has."""
        self.closed = True
        for subscription in list(self._subscriptions):
            subscription.end()
        self._subscriptions.clear()


def _events_of(status: NodeStatus) -> dict[EventKind, dict[str, Any]]:
    last = status.transitions[-1] if status.transitions else None
    return {
        "state": {
            "name": status.name,
            "state": status.state,
            "read_only": status.read_only,
            "writable": status.writable,
            "ro_reason": status.ro_reason,
            "transition": asdict(last) if last else None,
            "problem": status.problem,
        },
        "term": {"term": asdict(status.term) if status.term else None, "solo": status.solo},
        "peers": {"peers": [_steady(peer) for peer in status.peers]},
        "lag": {
            "lsn": status.lsn,
            "commit_lsn": status.commit_lsn,
            "lag": asdict(status.lag) if status.lag else None,
            "peers": [
                {
                    "address": peer.address,
                    "name": peer.name,
                    "lsn": peer.lsn,
                    "durable_lsn": peer.durable_lsn,
                    "lag": asdict(peer.lag) if peer.lag else None,
                }
                for peer in status.peers
            ],
        },
    }


def _steady(peer: Peer) -> dict[str, Any]:
    return {key: value for key, value in asdict(peer).items() if key not in _VOLATILE}
