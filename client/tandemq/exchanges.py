"""kombu's exchanges: which queues are bound to which, kept at the server for all its processes.

A tube holds one task a binding; nobody takes them, they are read. Whose queue ends with its
consumer (`auto_delete`) says every now and then that it is still there: one that does not, killed
say, is swept away with its queue by the next to bind anything.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kombu.transport import virtual

from tandemq.client.errors import Refused, TubeMissing
from tandemq.model.errors import ER_NO_SUCH_PROC

log = logging.getLogger("tandemq")
TUBE = "kombu.bindings"
#: Seconds after which a queue that ends with its consumer counts as left, and between two words
#: of a consumer that is there.
LEFT_SECONDS, ALIVE_SECONDS = 600, 200
_SECOND = 1_000_000
#: A row of the tube: its id, when it was put in µs of the server's clock, what was put.
_ID, _CREATED, _DATA = 0, 6, 7
_ALL = {"limit": 100_000}


class Binding(NamedTuple):
    """passing: the queue ends with its consumer. ttl: seconds its messages live, None for ever."""

    exchange: str
    routing_key: str
    pattern: str | None
    queue: str
    passing: bool = False
    ttl: float | None = None


class Bindings:
    """call: any call of the server, repeated when unanswered; drop: delete a queue."""

    def __init__(self, call: Callable[..., list[Any]], drop: Callable[[str], None]) -> None:
        self._call = call
        self._drop = drop
        #: What this process has bound: the row's id of each.
        self._own: dict[Binding, int] = {}
        self._away = False

    def of(self, exchange: str) -> list[Binding]:
        """All there are, whoever declared them."""
        return list(
            dict.fromkeys(found for _, _, found in self._rows() if found.exchange == exchange)
        )

    def add(self, binding: Binding) -> None:
        """Raises nothing when the user may not: its bindings are known to this process only."""
        if binding in self._own or self._away:
            return
        try:
            self._call("queue.create_tube", TUBE, "fifottl", {"if_not_exists": True})
            there = {found: number for number, _, found in self._rows()}
            if not binding.passing and binding in there:
                self._own[binding] = there[binding]
                return
            self._own[binding] = self._put(binding)
            self._sweep()
        except Refused as error:
            self._do_without(error)

    def alive(self, queue: str) -> None:
        """The queue's consumer is there; called every `ALIVE_SECONDS`."""
        for binding, number in list(self._own.items()):
            if binding.queue == queue and binding.passing:
                self._own[binding] = self._put(binding)
                self._delete(number)

    def forget(self, queue: str) -> None:
        """The queue is no more."""
        if self._away:
            return
        self._own = {one: number for one, number in self._own.items() if one.queue != queue}
        for number, _, found in self._rows():
            if found.queue == queue:
                self._delete(number)

    def _do_without(self, error: Refused) -> None:
        self._away = True
        log.warning("bindings of other processes are not known here: %s", error)

    def _put(self, binding: Binding) -> int:
        return int(self._call(f"queue.tube.{TUBE}:put", list(binding))[0][0])

    def _delete(self, number: int) -> None:
        try:
            self._call(f"queue.tube.{TUBE}:delete", number)
        except Refused:
            log.debug("binding %s is deleted already", number)

    def _rows(self) -> Iterator[tuple[int, int, Binding]]:
        """Row id, when it was put, the binding; nothing where nobody ever bound anything."""
        if self._away:
            return
        try:
            rows = self._call(f"box.space.{TUBE}:select", [], _ALL)[0]
        except Refused as error:
            if error.code != ER_NO_SUCH_PROC:  # else nobody has bound anything yet
                self._do_without(error)
            return
        for row in rows:
            yield int(row[_ID]), int(row[_CREATED]), Binding(*row[_DATA])

    def _sweep(self) -> None:
        """Delete queues whose consumers were not heard of for long, by the server's clock."""
        heard: dict[str, int] = {}
        now = 0
        for _, created, found in self._rows():
            now = max(now, created)
            if found.passing:
                heard[found.queue] = max(created, heard.get(found.queue, 0))
        for queue, last in heard.items():
            if now - last > LEFT_SECONDS * _SECOND:
                log.info("queue %s was left by its consumer: it is deleted", queue)
                self._drop(queue)


class ExchangeChannel(virtual.Channel):
    """A channel whose bindings all processes know: `fanout`, replies, topics.

    A `direct` exchange asks the server only where this process has bound nothing to the routing
    key: a message costs one request then, as without exchanges.
    """

    supports_fanout = True
    bindings: Bindings

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        #: Queues that end with their consumer, and the ms their messages live.
        self.passing: dict[str, float | None] = {}

    def declared(self, queue: str, auto_delete: bool, arguments: dict[str, Any] | None) -> None:
        """What becomes of a queue, noted for its bindings."""
        if auto_delete:
            self.passing[queue] = (arguments or {}).get("x-message-ttl")

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **options: Any,
    ) -> None:
        super().queue_bind(queue, exchange, routing_key, arguments, **options)
        name = exchange or "amq.direct"
        _, pattern, _ = self.typeof(name).prepare_bind(queue, name, routing_key, arguments)
        ttl = self.passing.get(queue)
        passing, seconds = queue in self.passing, None if ttl is None else ttl / 1000
        self.bindings.add(Binding(name, routing_key, pattern, queue, passing, seconds))

    def _queue_bind(self, *_meta: Any) -> None:
        """`queue_bind` has said it, also of what this process bound at another server."""

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        kind = self.typeof(exchange)
        if exchange and exchange in self.state.exchanges:
            near = kind.lookup(self.get_table(exchange), exchange, routing_key, default)
            if near and kind.type == "direct":
                return near
            table = [found[1:4] for found in self.bindings.of(exchange)]
            if found := near | kind.lookup(table, exchange, routing_key, default):
                return found
        return super()._lookup(exchange, routing_key, default)

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], _routing_key: str, **_options: Any
    ) -> None:
        """A copy for each queue; one that has gone meanwhile gets none."""
        for found in {one.queue: one for one in self.bindings.of(exchange)}.values():
            with contextlib.suppress(TubeMissing):
                self.put_there(found.queue, message, found.ttl)

    def put_there(self, queue: str, message: dict[str, Any], ttl: float | None) -> None:
        """Put into a queue that is there; `TubeMissing` where it is not."""
        raise NotImplementedError
