"""A broker for Dramatiq: `dramatiq.set_broker(TandemBroker("a:3301,b:3302"))`.

A message is acknowledged after the work. What Dramatiq sends again (a retry) replaces the delivery
it comes from in one transaction, so that a crash in between leaves one of the two.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from dramatiq.broker import Broker, Consumer, MessageProxy
from dramatiq.common import q_name
from dramatiq.errors import (
    BrokerConnectionError,
    DecodeError,
    QueueJoinTimeout,
    QueueNotFound,
)
from dramatiq.message import Message
from dramatiq.middleware import Middleware

from tandemq.brokers import make_tube, put_options
from tandemq.client.errors import LeaseLost, Refused, TandemError, Unavailable, Unknown
from tandemq.client.sync import SyncClient, SyncTask, SyncTube, connect_sync

log = logging.getLogger("tandemq")
#: Options of a message beside Dramatiq's own: actors may set them, and `send_with_options`.
OPTIONS = frozenset({"broker_priority", "key", "window", "order", "ttl"})
_JOIN_SECONDS = 0.02


class TandemBroker(Broker):
    """Dramatiq's queues as tubes of the same names.

    Options of an actor or a message: `broker_priority` (0 to 255, the larger first), `key` and
    `window` (idempotency; seconds), `order` (messages of the same name one after the other; for
    brokers made with `ordered=True`), `ttl` (milliseconds to live). Delays, those of retries too,
    are the server's: no worker holds a message that waits. What failed for good is moved to the
    tube `QUEUE.XQ`.
    """

    def __init__(
        self,
        servers: str = "127.0.0.1:3301",
        *,
        middleware: list[Middleware] | None = None,
        ordered: bool = False,
        tube_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """`options`: those of `tandemq.connect_sync`; `tube_options`: docs/tube-options.md."""
        super().__init__(middleware)
        self.actor_options |= OPTIONS
        self.servers = servers
        self.ordered = ordered
        self.tube_options = dict(tube_options or {})
        self.options = options
        self.queues: dict[str, None] = {}
        self._client: SyncClient | None = None
        self._tubes: dict[str, SyncTube] = {}
        self._lock = threading.RLock()
        #: Messages being worked on here, by id, and what is to follow them.
        self._in_hand: dict[str, _Proxy] = {}

    @property
    def client(self) -> SyncClient:
        """The connection, made on first use: actors are declared before anybody connects."""
        with self._lock:
            if self._client is None:
                self._client = connect_sync(self.servers, **self.options)
            return self._client

    def tube(self, queue_name: str) -> SyncTube:
        """The tube of a queue, made unless it is there. Raises BrokerConnectionError."""
        with self._lock:
            found = self._tubes.get(queue_name)
            if found is None:
                client = self.client
                dead = dead_name(queue_name)
                making = make_tube(client.client, queue_name, self.tube_options, self.ordered, dead)
                try:
                    client._loop.run(making)
                except (Unavailable, Unknown) as error:
                    raise _unreachable(error) from error
                found = self._tubes[queue_name] = client.tube(queue_name)
            return found

    def close(self) -> None:
        """Leave; a worker was stopped before."""
        with self._lock:
            client, self._client = self._client, None
            self._tubes.clear()
        if client is not None:
            client.close()

    def declare_queue(self, queue_name: str) -> None:
        """Nothing is asked of the server before the queue is used."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """Raises QueueNotFound, BrokerConnectionError."""
        self._check(queue_name)
        return _Consumer(self, queue_name, prefetch, timeout)

    def enqueue(self, message: Any, *, delay: int | None = None) -> Any:
        """Send; repeated until it is answered, and never two of it.

        Raises QueueNotFound, BrokerConnectionError.
        """
        queue_name = q_name(message.queue_name)
        self._check(queue_name)
        self.emit_before("enqueue", message, delay)
        told = message.options
        ttl = told.get("ttl")
        options = put_options(
            ordered=self.ordered,
            delay=None if delay is None else delay / 1000,
            priority=told.get("broker_priority"),
            key=told.get("key") if not told.get("retries") else None,
            window=told.get("window"),
            order=told.get("order"),
            ttl=None if ttl is None else ttl / 1000,
        )
        proxy = self._in_hand.get(message.message_id)
        if proxy is not None and not proxy.ending:
            self.tube(queue_name)
            proxy.follow.append((queue_name, message.encode(), options))
        else:
            try:
                self.tube(queue_name).put(message.encode(), **options)
            except (Unavailable, Unknown) as error:
                raise _unreachable(error) from error
        self.emit_after("enqueue", message, delay)
        return message

    def _check(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)  # type: ignore[no-untyped-call]

    def flush(self, queue_name: str) -> None:
        """Drop all messages of a queue, those that were given up too."""
        self._check(queue_name)
        self.tube(queue_name).call("truncate", [])
        self.client.tube(dead_name(queue_name)).call("truncate", [])

    def flush_all(self) -> None:
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until all messages of a queue, delayed ones too, were worked on; for tests."""
        self._check(queue_name)
        self.tube(queue_name)
        limit = None if timeout is None else time.monotonic() + timeout / 1000
        while True:
            tasks = self.client.statistics(queue_name)["tasks"]
            if not tasks["ready"] + tasks["delayed"] + tasks["taken"]:
                return
            if limit is not None and time.monotonic() >= limit:
                raise QueueJoinTimeout(queue_name)  # type: ignore[no-untyped-call]
            time.sleep(_JOIN_SECONDS)


def dead_name(queue_name: str) -> str:
    """The tube of what a queue gave up."""
    return f"{queue_name}.XQ"


class _Proxy(MessageProxy):
    """A message and the delivery it came by. `follow`: puts that replace it when it is acked."""

    def __init__(self, message: Message[Any], task: SyncTask) -> None:
        super().__init__(message)
        self.task = task
        self.follow: list[tuple[str, bytes, dict[str, Any]]] = []
        self.ending = False


class _Consumer(Consumer):
    """Takes messages of one queue, `prefetch` at most that are not acknowledged."""

    def __init__(self, broker: TandemBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        self.broker = broker
        self.queue_name = queue_name
        self.tube = broker.tube(queue_name)
        self.prefetch = prefetch
        self.room = threading.Semaphore(prefetch)
        self.seconds = timeout / 1000
        #: Taken together with one that was handed over, and ours as much as that one.
        self.taken: deque[SyncTask] = deque()

    def __next__(self) -> _Proxy | None:
        if not self.taken:
            self._take()
        while self.taken:
            if (proxy := self._read(self.taken.popleft())) is not None:
                return proxy
            self.room.release()
        return None

    def _take(self) -> None:
        """As many as there is room for, after a wait for the first: one round trip."""
        if not self.room.acquire(timeout=self.seconds):
            return
        room = 1
        while room < self.prefetch and self.room.acquire(blocking=False):
            room += 1
        try:
            self.taken.extend(_held(self.tube, room, self.seconds))
        except (Unavailable, Unknown) as error:
            log.warning("%s: %s; still trying", self.queue_name, error)
        except Refused as error:
            raise _unreachable(error) from error
        finally:
            if unused := room - len(self.taken):
                self.room.release(unused)

    def _read(self, task: SyncTask) -> _Proxy | None:
        try:
            message: Any = Message.decode(task.data)
        except (DecodeError, TypeError, ValueError) as error:
            log.error("%r holds no message: %s", task, error)
            _end(task, lambda: task.finish([(dead_name(self.queue_name), task.data)]))
            return None
        proxy = _Proxy(message, task)
        self.broker._in_hand[message.message_id] = proxy
        return proxy

    def close(self) -> None:
        """Give back what was taken and never handed over."""
        while self.taken:
            _end(self.taken[-1], partial(self.taken[-1].release, 0, "the worker ended"))
            self.taken.pop()
            self.room.release()

    def ack(self, message: Any) -> None:
        follow = message.follow
        message.ending = True
        ending = message.task.ack if not follow else lambda: message.task.finish(follow)
        self._done(message, ending)

    def nack(self, message: Any) -> None:
        message.ending = True
        task = message.task
        self._done(message, lambda: task.finish([(dead_name(self.queue_name), task.data)]))

    def requeue(self, messages: Iterable[Any]) -> None:
        for message in messages:
            message.ending = True
            self._done(message, partial(message.task.release, 0, "the worker ended"))

    def _done(self, message: Any, ending: Any) -> None:
        _end(message.task, ending)
        known: Any = self.broker._in_hand.get(message.message_id)
        if known is message:
            del self.broker._in_hand[message.message_id]
        self.room.release()


def _held(tube: SyncTube, count: int, seconds: float) -> list[SyncTask]:
    """Take, and touch from here on until the end of each; one way to the loop's thread and back."""

    async def taken() -> list[SyncTask]:
        found = []
        for task in await tube.tube.take_many(count, seconds):
            with contextlib.suppress(LeaseLost):  # nobody's any more: others have it
                found.append(SyncTask(tube._loop, await task.enter(None)))
        return found

    return tube._loop.run(taken())


def _unreachable(error: TandemError) -> BrokerConnectionError:
    return BrokerConnectionError(str(error))  # type: ignore[no-untyped-call]


def _end(task: SyncTask, ending: Any) -> None:
    """Raises BrokerConnectionError when nobody answers: the worker tries again."""
    try:
        ending()
    except LeaseLost as error:
        log.warning("%r was lost while it was worked on, another worker has it: %s", task, error)
    except (Unavailable, Unknown) as error:
        raise _unreachable(error) from error
    except TandemError as error:
        log.error("%r is not acknowledged and will come again: %s", task, error)


__all__ = ["TandemBroker"]
