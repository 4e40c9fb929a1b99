"""A transport for Celery (of kombu): `import tandemq.celery`, `broker_url = "tandemq://a:3301"`.

Queues are tubes. A message that has an eta waits at the server, not in a worker's memory; one that
is worked on is touched, survives a switch-over in its worker's hands, and is acknowledged when
Celery says so: after the work with `app.conf.update(tandemq.celery.AFTER_THE_WORK)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads

from tandemq.brokers import make_tube, put_options, seconds_until, servers_of
from tandemq.client.api import Client, connect
from tandemq.client.errors import Refused, TandemError, TubeMissing, Unavailable, Unknown
from tandemq.client.task import Task
from tandemq.client_thread import ClientThread
from tandemq.endings import Endings
from tandemq.exchanges import ALIVE_SECONDS, Bindings, ExchangeChannel

log = logging.getLogger("tandemq")
DEFAULT_PORT = 3301
#: Settings of an app whose tasks are acknowledged after the work, whatever becomes of a worker.
AFTER_THE_WORK = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_prefetch_multiplier": 1,
}
#: Headers of a message (`apply_async(headers={...})`) that are options of its put.
KEY, WINDOW, ORDER = "tandem_key", "tandem_window", "tandem_order"
#: Messages for a consumer that names no limit.
_AT_ONCE = 10
_TAKE_SECONDS = 1.0
_SLICE_SECONDS = 0.25


class QoS(virtual.QoS):
    """Messages that were delivered and not acknowledged; each is a task in hand."""

    channel: TandemChannel

    def ack(self, delivery_tag: str) -> None:
        """The work is done."""
        self.channel.end(delivery_tag, lambda task: task.ack())
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Back to the queue, or set aside: buried, where `tandemq kick` finds it."""
        back = (lambda task: task.release(0, "rejected")) if requeue else None
        self.channel.end(delivery_tag, back or (lambda task: task.bury("rejected")))
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Give back what was not begun or not finished."""
        self._flush()
        while self._delivered:
            tag, _ = self._delivered.popitem()
            self.channel.end(tag, lambda task: task.release(0, "the worker ended"))
        return []


class TandemChannel(ExchangeChannel):
    """Queues as tubes of their names.

    transport_options: `ordered` (messages with the same header `tandem_order` one after the other),
    `tube_options` (docs/tube-options.md), `dead_letter` (with `max_attempts` among them: where what
    was given up goes), and those of `tandemq.connect`.
    """

    QoS = QoS
    connection: Transport
    max_priority = 255
    ordered = False
    tube_options: dict[str, Any] = {}  # noqa: RUF012
    dead_letter: str | None = None
    own_options = ("ordered", "tube_options", "dead_letter")
    from_transport_options = (*virtual.Channel.from_transport_options, *own_options)

    def __init__(self, connection: Transport, **options: Any) -> None:
        super().__init__(connection, **options)
        self.transport = connection
        self.tasks: dict[str, Task] = {}
        self._lanes: dict[str, Any] = {}
        self._known: set[str] = set()
        #: Queues whose consumer wants none of it: a message is done when it is delivered.
        self.unacknowledged: set[str] = set()
        #: Taken by a lane and not yet delivered.
        self.waiting = 0

    # -- producing -------------------------------------------------------------------------------

    @property
    def bindings(self) -> Bindings:  # type: ignore[override]
        return self.transport.bindings

    def _new_queue(
        self, queue: str, auto_delete: bool = False, arguments: Any = None, **_options: Any
    ) -> None:
        self.declared(queue, auto_delete, arguments)
        if queue in self._known:
            return
        options = dict(self.tube_options)
        if self.dead_letter is not None and queue != self.dead_letter:
            options["dead_letter"] = self.dead_letter
        client = self.transport.tandem
        self.transport.run(make_tube(client, queue, options, self.ordered, self.dead_letter))
        self._known.add(queue)

    def _has_queue(self, queue: str, **_options: Any) -> bool:
        return bool(self.transport.call("queue.tube", queue)[0])

    def _put(self, queue: str, message: dict[str, Any], **_options: Any) -> None:
        self._new_queue(queue)
        self.put_there(queue, message)

    def put_there(self, queue: str, message: dict[str, Any], ttl: float | None = None) -> None:
        headers = message.get("headers") or {}
        options = put_options(
            ordered=self.ordered and queue != self.dead_letter,
            delay=seconds_until(headers.get("eta")),
            priority=message["properties"].get("priority"),
            key=headers.get(KEY),
            window=headers.get(WINDOW),
            order=headers.get(ORDER),
            ttl=seconds_until(headers.get("expires")) if ttl is None else ttl,
        )
        tube = self.transport.tandem.tube(queue)
        self.transport.run(tube.put(dumps(message), **options))

    def _size(self, queue: str) -> int:
        tasks = self.transport.run(self.transport.tandem.statistics(queue))["tasks"]
        return int(tasks["ready"] + tasks["delayed"])

    def _purge(self, queue: str) -> int:
        size = self._size(queue)
        self.transport.call(f"queue.tube.{queue}:truncate")
        return size

    def _delete(self, queue: str, *_args: Any, **_options: Any) -> None:
        self.transport.drop(queue)
        self._known.discard(queue)

    # -- consuming -------------------------------------------------------------------------------

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **options: Any
    ) -> Any:
        """Begin to take messages of a queue in the background, as far as the prefetch goes."""
        found = super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        if queue not in self._lanes:
            self._new_queue(queue)
            self._lanes[queue] = self.transport.spawn(self._serve(queue))
        if no_ack:
            self.unacknowledged.add(queue)
        return found

    def basic_cancel(self, consumer_tag: str) -> Any:
        """Take no more; what was taken and not delivered is given back."""
        queue = self._tag_to_queue.get(consumer_tag)
        found = super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            if lane := self._lanes.pop(queue, None):
                lane.cancel()
            self.transport.give_back(self, queue)
            if queue in self.passing and not self.transport.is_elsewhere:
                self.queue_delete(queue)
        return found

    async def _serve(self, queue: str) -> None:
        """One message after the other into the transport's hands."""
        tube = self.transport.tandem.tube(queue)
        told = time.monotonic()
        while True:
            if queue in self.passing and time.monotonic() - told > ALIVE_SECONDS:
                told = time.monotonic()
                await asyncio.to_thread(self.bindings.alive, queue)
            self.transport.freed.clear()
            room = self._room()
            if room < 1:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_SLICE_SECONDS):
                        await self.transport.freed.wait()
                continue
            self.waiting += room
            tasks: list[Task] = []
            try:
                # A queue can be deleted once nobody waits at it.
                wait = _SLICE_SECONDS if queue in self.passing else _TAKE_SECONDS
                tasks = await tube.take_many(room, wait)
            except (Unavailable, Unknown) as error:
                log.warning("%s: %s; still trying", queue, error)
                await asyncio.sleep(0.1)
            except Refused as error:
                log.error("%s: %s", queue, error)
                await asyncio.sleep(_TAKE_SECONDS)
                if isinstance(error, TubeMissing) and queue in self.passing:
                    await asyncio.to_thread(self._again, queue)
            finally:
                self.waiting -= room - len(tasks)
            for task in tasks:
                await task.enter(None)
                self.transport.arrived.put((self, queue, task))

    def _again(self, queue: str) -> None:
        """This process stood still for so long that its queue was taken for left."""
        self._known.discard(queue)
        self._new_queue(queue)
        self.bindings.alive(queue)

    def _room(self) -> int:
        """How many messages may be taken now."""
        qos = self.qos
        limit = qos.prefetch_count
        if not limit:
            # Who names no limit gets what is there when he asks, and nothing is fetched ahead.
            return _AT_ONCE if self.transport.asked and not self.waiting else 0
        return int(limit - (len(qos._delivered) - len(qos._dirty)) - self.waiting)

    def accept(self, task: Task) -> dict[str, Any]:
        """The message a task holds; its tag names the delivery from here on."""
        message: dict[str, Any] = loads(task.data)
        properties = message["properties"]
        tag = properties["delivery_tag"] = f"{task.id}.{task.token}"
        if task.attempt > 1:
            properties.setdefault("delivery_info", {})["redelivered"] = True
        self.tasks[tag] = task
        return message

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        task = self.transport.run(self.transport.tandem.tube(queue).take(timeout or 0))
        if task is None:
            raise virtual.base.Empty
        self.transport.run(task.enter(None))
        return self.accept(task)

    def end(self, tag: str, ending: Callable[[Task], Coroutine[Any, Any, None]]) -> None:
        """End a delivery beside what the worker goes on with."""
        task = self.tasks.pop(tag, None)
        if task is None or self.transport.is_elsewhere:
            return
        transport = self.transport
        transport.endings.begin(task, ending(task), transport.freed.set)

    def leave(self, task: Task) -> None:
        """Give back what was taken and never delivered."""
        self.tasks["left"] = task
        self.end("left", lambda task: task.release(0, "nobody consumes"))

    def close(self) -> None:
        """Give back what is in hand."""
        for lane in self._lanes.values():
            lane.cancel()
        self._lanes.clear()
        super().close()
        if not self.transport.is_elsewhere:
            self.transport.endings.settle()


class Transport(ClientThread, virtual.Transport):
    """One session with a cluster: all URLs of `broker_url`, separated by `;`, are its nodes."""

    Channel = TandemChannel
    default_port = DEFAULT_PORT
    driver_type = driver_name = "tandemq"
    connection_errors = (*virtual.Transport.connection_errors, Unavailable, Unknown)
    channel_errors = (*virtual.Transport.channel_errors, Refused)
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.arrived: queue.SimpleQueue[tuple[TandemChannel, str, Task]] = queue.SimpleQueue()
        self.freed = asyncio.Event()
        #: Somebody waits for a message.
        self.asked = False
        self.endings = Endings(self.spawn)
        self.bindings = Bindings(self.call, self.drop)

    def driver_version(self) -> str:
        from importlib.metadata import version

        return version("tandemq")

    async def _make(self) -> Client:
        told = self.client.transport_options
        known = ("timeout", "session", "on_switch")
        options = {name: told[name] for name in known if name in told}
        urls = self.client.alt or [self.client.as_uri(include_password=True)]
        servers = told.get("servers") or servers_of(urls, DEFAULT_PORT)
        login = {"user": self.client.userid or None, "password": self.client.password or None}
        return connect(servers, **{**login, **options})

    def drop(self, queue: str) -> None:
        """Delete a queue with what is in it, and all that is known of it.

        A take of ours that has just been given up may still wait at the server.
        """
        self.bindings.forget(queue)
        deadline = time.monotonic() + 2 * _SLICE_SECONDS
        while True:
            try:
                self.call(f"queue.tube.{queue}:drop")
            except TubeMissing:
                log.debug("queue %s is deleted already", queue)
            except Refused as error:
                if time.monotonic() < deadline:
                    time.sleep(_SLICE_SECONDS / 10)
                    continue
                log.warning("queue %s is not deleted: %s", queue, error)
            return

    # -- what kombu asks -------------------------------------------------------------------------

    def establish_connection(self) -> Any:
        """Raises Unavailable when no node serves."""
        client = self.tandem
        limit = self.client.connect_timeout or client.timeout
        try:
            self.run(client.link.call("queue.state", [], limit, repeat=True))
        except TandemError:
            self.leave()
            raise
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Give back what is in hand, and leave; a child of who connected has nothing in hand."""
        if self.is_elsewhere:
            return
        super().close_connection(connection)
        self.give_back()
        self.endings.settle()
        self.leave()

    def give_back(self, only: TandemChannel | None = None, name: str | None = None) -> None:
        """Release what was taken and not delivered: of one queue of a channel, or all."""
        kept = []
        while not self.arrived.empty():
            item = self.arrived.get()
            if only is not None and item[:2] != (only, name):
                kept.append(item)
                continue
            channel, _name, task = item
            channel.waiting -= 1
            channel.leave(task)
        for item in kept:
            self.arrived.put(item)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver what has come, or comes; `socket.timeout` when nothing did in time."""
        limit = None if timeout is None else time.monotonic() + timeout
        self.asked = True
        self.soon(self.freed.set)
        try:
            self._drain(limit)
        finally:
            self.asked = False

    def _drain(self, limit: float | None) -> None:
        """Wait for a message, and deliver all that came with it."""
        while True:
            left = _SLICE_SECONDS if limit is None else limit - time.monotonic()
            try:
                item = self.arrived.get(timeout=max(0.0, min(left, _SLICE_SECONDS)))
            except queue.Empty:
                if limit is not None and time.monotonic() >= limit:
                    raise socket.timeout from None  # noqa: UP041
                continue
            with contextlib.suppress(queue.Empty):
                while True:
                    self._hand_over(*item)
                    item = self.arrived.get_nowait()
            return

    def _hand_over(self, channel: TandemChannel, name: str, task: Task) -> None:
        channel.waiting -= 1
        if name in self._callbacks:
            message = channel.accept(task)
            if name in channel.unacknowledged:
                channel.end(message["properties"]["delivery_tag"], lambda task: task.ack())
            self._deliver(message, name)
            return
        channel.leave(task)


TRANSPORT_ALIASES["tandemq"] = "tandemq.celery:Transport"

__all__ = ["AFTER_THE_WORK", "KEY", "ORDER", "WINDOW", "Transport"]
