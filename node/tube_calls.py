"""Calls of a tube beyond the original's: handlers as in calls.py, rights of other tubes checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engine import arguments, attempts, pause
from engine.tube import Tube
from node import requests
from node.calls import Handler, argument, reply
from wire.arguments import plain
from wire.replies import values_reply

if TYPE_CHECKING:
    from node.connection import Connection
    from node.core import Core

#: Those that a node which is not RUNNING answers from its own copy.
READING = frozenset({"info"})


class MoreCalls:
    """Handlers of one tube."""

    def __init__(self, core: Core, tube: Tube) -> None:
        self.core = core
        self.tube = tube

    def handlers(self) -> Iterator[tuple[str, Handler]]:
        for name in ("info", "redrive", "pause", "resume"):
            yield name, getattr(self, name)

    def must_put(self, connection: Connection, name: str) -> None:
        """Raise unless the user may put into a tube."""
        call = f"queue.tube.{name}:put"
        if not self.core.allowed(connection.user, call):
            raise requests.access_denied("Execute", "function", call, connection.user)

    def info(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        return _map(ticket, attempts.info(self.tube, argument(plain(args), 0)))

    def redrive(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        opts = arguments.task_options(argument(values, 1), frozenset({"to"}), "redrive")
        moved = attempts.redrive(
            self.tube,
            connection,
            argument(values, 0),
            opts.get("to") if opts else None,
            lambda name: self.must_put(connection, name),
        )
        return reply(ticket, moved)

    def pause(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        what = argument(plain(args), 0)
        return _map(ticket, pause.change(self.tube, connection, what, pause=True))

    def resume(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        what = argument(plain(args), 0)
        return _map(ticket, pause.change(self.tube, connection, what, pause=False))


def _map(ticket: int, found: dict[str, Any]) -> bytes:
    return values_reply(ticket >> 1, [found], bool(ticket & 1))
