"""Quotas of users: calls a second and connections are counted here, tasks and bytes in the engine.

A call is wrapped when its name is looked up, for users with a quota alone: others pay nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tandemq.model.units import SECOND_US
from tandemq_server.engine.usage import Holding, Usage, over

if TYPE_CHECKING:
    from tandemq_server.node.core.calls import Handler
    from tandemq_server.node.core.connection import Connection

#: Calls that put, by method or by whole name.
_PUTS = frozenset({"put", "put_many", "finish"})
_WHOLE = frozenset({"queue15.put", "queue15.put_unique", "queue15.urgent"})
#: Of everybody, always: what a client needs to find its way, and who it is.
_FREE = ("box.", "queue.identify", "queue.state")


@dataclass(frozen=True, slots=True)
class UserQuota:
    """How much one user may take; None for any amount. rate: calls a second."""

    tasks: int | None = None
    bytes: int | None = None
    rate: float | None = None
    connections: int | None = None


class Bucket:
    """Calls a second: as many at once as in one second, then one after the other."""

    __slots__ = ("at", "left", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.left = max(rate, 1.0)
        self.at = 0

    def take(self, now: int) -> bool:
        """Whether one more call is within the rate at `now` (µs)."""
        self.left = min(max(self.rate, 1.0), self.left + (now - self.at) * self.rate / SECOND_US)
        self.at = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class Quotas:
    """Of one node; a reload takes others."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self._of: dict[str, UserQuota] = {}
        self._buckets: dict[str, Bucket] = {}

    def take(self, quotas: Mapping[str, UserQuota]) -> None:
        """By user: these hold from the next look-up of a call on."""
        self._of = dict(quotas)
        self.usage.limits = {
            name: Holding(one.tasks, one.bytes)
            for name, one in self._of.items()
            if one.tasks is not None or one.bytes is not None
        }
        kept = self._buckets
        self._buckets = {}
        for name, one in self._of.items():
            if one.rate is not None:
                same = name in kept and kept[name].rate == one.rate
                self._buckets[name] = kept[name] if same else Bucket(one.rate)

    def check_connections(self, user: str, others: Iterable[Connection]) -> None:
        """Raise where a user who logs in has as many `others` as it may."""
        quota = self._of.get(user)
        most = quota.connections if quota is not None else None
        if most is None:
            return
        now = sum(one.user == user for one in others)
        if now >= most:
            raise over(user, "connections", f"{now} connections, {most} allowed")

    def guarded(self, user: str, call: str, handler: Handler) -> Handler:
        """The handler of a call by its whole name, within what the user may; itself without one."""
        puts = call in _WHOLE or call.rpartition(":")[2] in _PUTS
        if puts and user in self.usage.limits:
            handler = self._charged(user, handler)
        bucket = self._buckets.get(user)
        if bucket is not None and not call.startswith(_FREE):
            handler = self._slowed(user, bucket, handler)
        return handler

    def _charged(self, user: str, handler: Handler) -> Handler:
        engine = self.usage.engine

        def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
            engine.putter = user
            try:
                return handler(connection, ticket, args)
            finally:
                engine.putter = None

        return handle

    def _slowed(self, user: str, bucket: Bucket, handler: Handler) -> Handler:
        engine = self.usage.engine

        def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
            if not bucket.take(engine.now):
                raise over(user, "rate", f"{bucket.rate:g} calls a second allowed")
            return handler(connection, ticket, args)

        return handle
