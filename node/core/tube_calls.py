"""Calls of a tube beyond the original's: handlers as in calls.py, rights of other tubes checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq_server.engine import admin, altering, arguments, attempts, finish, listing, pause
from tandemq_server.engine.tube import EngineTube
from tandemq_server.node.core.calls import Handler, argument, reply, visible
from tandemq_server.node.core.module_calls import must_fill
from tandemq_server.wire.arguments import plain
from tandemq_server.wire.finish import split_finish
from tandemq_server.wire.replies import values_reply

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core

#: Those that a node which is not RUNNING answers from its own copy.
READING = frozenset({"info", "list"})


class MoreCalls:
    """Handlers of one tube."""

    def __init__(
        self, core: Core, tube: EngineTube, check_payload: Callable[[bytes], None]
    ) -> None:
        """`check_payload` raises for a payload that is too large or too deep."""
        self.core = core
        self.tube = tube
        self.check_payload = check_payload

    def handlers(self) -> Iterator[tuple[str, Handler]]:
        for name in ("info", "list", "finish", "redrive", "pause", "resume", "bulk", "alter"):
            yield name, getattr(self, name)

    def must_put(self, connection: Connection, name: str) -> None:
        """Raise unless the user may put into a tube."""
        self.core.must(connection, f"queue.tube.{name}:put")

    def info(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        return _map(ticket, self._placed(attempts.info(self.tube, argument(plain(args), 0))))

    def _placed(self, known: dict[str, Any]) -> dict[str, Any]:
        """With where the holder is connected from, while it is."""
        holder = known.get("holder")
        if holder is not None:
            found = self.core.connections.get(holder["connection"])
            if (
                found is not None
                and found.session is not None
                and found.session.hex().startswith(holder["session"])
            ):
                holder["peer"] = found.peer
        return known

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
        if opts and type(opts.get("to")) is str:
            self.must_put(connection, opts["to"])
        moved = attempts.redrive(
            self.tube,
            connection,
            argument(values, 0),
            opts.get("to") if opts else None,
            lambda name: self.must_put(connection, name),
        )
        return reply(ticket, moved)

    def list(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        opts, with_info = argument(plain(args), 0), None
        if type(opts) is dict and "info" in opts:
            opts = dict(opts)
            with_info = opts.pop("info")
            if with_info is not None and type(with_info) is not bool:
                raise failure(f"Invalid value of info: {with_info} (expected true or false)")
        rows, cursor = listing.page(self.tube, opts)
        tasks = [visible(row) for row in rows]
        if with_info:
            for task in tasks:
                task.append(self._placed(attempts.info(self.tube, task[0])))
        return _map(ticket, {"tasks": tasks, "cursor": cursor})

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

    def alter(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        opts = argument(plain(args), 0)
        must_fill(self.core, connection, opts)
        tube = altering.alter_tube(self.core.engine, self.tube.name, opts)
        return _map(ticket, admin.describe(tube))

    def resume(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        what = argument(plain(args), 0)
        return _map(ticket, pause.change(self.tube, connection, what, pause=False))


def _map(ticket: int, found: dict[str, Any]) -> bytes:
    return values_reply(ticket >> 1, [found], bool(ticket & 1))
