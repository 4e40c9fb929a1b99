"""Calls of a tube beyond the original's: handlers as in calls.py, rights of other tubes checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from engine import arguments, attempts, finish, listing, pause
from engine.tube import Tube
from model.errors import failure
from node import requests
from node.calls import Handler, argument, reply, visible
from wire.arguments import plain
from wire.finish import split_finish
from wire.replies import values_reply

if TYPE_CHECKING:
    from node.connection import Connection
    from node.core import Core

#: Those that a node which is not RUNNING answers from its own copy.
READING = frozenset({"info", "list"})


class MoreCalls:
    """Handlers of one tube."""

    def __init__(self, core: Core, tube: Tube, check_payload: Callable[[bytes], None]) -> None:
        """`check_payload` raises for a payload that is too large or too deep."""
        self.core = core
        self.tube = tube
        self.check_payload = check_payload

    def handlers(self) -> Iterator[tuple[str, Handler]]:
        for name in ("info", "list", "finish", "redrive", "pause", "resume", "bulk"):
            yield name, getattr(self, name)

    def must_put(self, connection: Connection, name: str) -> None:
        """Raise unless the user may put into a tube."""
        call = f"queue.tube.{name}:put"
        if not self.core.allowed(connection.user, call):
            raise requests.access_denied("Execute", "function", call, connection.user)

    def info(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        return _map(ticket, attempts.info(self.tube, argument(plain(args), 0)))

    def finish(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        task_id, wanted, opts = split_finish(args)
        token = arguments.split_token(opts, "finish", only=True)[1]
        puts: list[finish.Put] = []
        for number, (name, data, options) in enumerate(wanted, 1):
            if type(name) is not str:
                raise failure(f"Invalid put {number} of finish: expected the name of a tube")
            self.must_put(connection, name)
            target = self.core.engine.tubes.get(name)
            if target is None:
                raise failure(f"Invalid put {number} of finish: tube {name} does not exist")
            self.check_payload(data)
            puts.append((target, data, options))
        ids = finish.finish(self.tube, connection, task_id, puts, token)
        return reply(ticket, ids)

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

    def list(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        rows, cursor = listing.page(self.tube, argument(plain(args), 0))
        return _map(ticket, {"tasks": [visible(row) for row in rows], "cursor": cursor})

    def bulk(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        found = listing.bulk(
            self.tube,
            connection,
            argument(values, 0),
            argument(values, 1),
            lambda name: self.must_put(connection, name),
        )
        return _map(ticket, found)

    def pause(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        what = argument(plain(args), 0)
        return _map(ticket, pause.change(self.tube, connection, what, pause=True))

    def resume(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        what = argument(plain(args), 0)
        return _map(ticket, pause.change(self.tube, connection, what, pause=False))


def _map(ticket: int, found: dict[str, Any]) -> bytes:
    return values_reply(ticket >> 1, [found], bool(ticket & 1))
