"""Calls of the module and of `box`, as far as clients, pools and operators need them.

Each is `f(connection, ticket, raw arguments) -> encoded reply or None`, like the calls of a tube.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import ER_ILLEGAL_PARAMS, QueueError, failure
from tandemq.model.raw import raw_str
from tandemq.model.units import SECOND_US
from tandemq_server.engine import admin, altering
from tandemq_server.engine.clients import EMPTY
from tandemq_server.node.core.calls import Handler, argument, reply
from tandemq_server.wire.arguments import plain
from tandemq_server.wire.greeting import instance_uuid
from tandemq_server.wire.replies import values_reply
from tandemq_server.wire.watch import KEY_CHARS_MAX

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core

VERSION = "1.5.0"
#: Keys kept with their last values, those of the node's own among them.
BROADCAST_MAX, BROADCAST_BYTES_MAX = 1000, 65_536


def handlers(core: Core) -> dict[str, Handler]:
    """Names to handlers, bound to `core`."""
    engine = core.engine

    def simple(operation: Callable[[Connection, list[Any]], Any]) -> Handler:
        def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
            outcome = operation(connection, plain(args))
            if type(outcome) is list:
                return values_reply(ticket >> 1, [outcome], bool(ticket & 1))
            return reply(ticket, outcome)

        return handle

    def create(connection: Connection, args: list[Any]) -> Any:
        name, kind, opts = (*args, None, None, None)[:3]
        must_fill(core, connection, opts)
        return admin.describe(admin.create_tube(engine, name, kind, opts))

    def alter(connection: Connection, args: list[Any]) -> Any:
        name, opts = (*args, None, None)[:2]
        must_fill(core, connection, opts)
        return admin.describe(altering.alter_tube(engine, name, opts))

    def cfg(_connection: Connection, args: list[Any]) -> Any:
        ttr, in_replicaset = admin.cfg_options(argument(args, 0))
        if engine.running:
            engine.configure(ttr, in_replicaset)
        else:
            # As the original does: pools say it to every node, and the one that leads applies it.
            kept = core.asked_cfg
            core.asked_cfg = (
                kept[0] if ttr is None else ttr,
                kept[1] if in_replicaset is None else in_replicaset,
            )
        return EMPTY

    def identify(connection: Connection, args: list[Any]) -> Any:
        return raw_str(engine.sessions.identify(connection, session_uuid(argument(args, 0))))

    def register_driver(_connection: Connection, args: list[Any]) -> Any:
        if type(argument(args, 0)) is str and args[0] in engine.drivers:
            raise failure(f'overriding registered driver "{args[0]}"')
        raise failure(
            'tube control methods must contain functions "create_space" and "new": drivers are '
            "Python classes named under `drivers:` in the node's configuration"
        )

    def lost(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        gone = engine.lookout.wait(connection, ticket, argument(values, 0), argument(values, 1))
        if type(gone) is list:
            return values_reply(ticket >> 1, [gone], bool(ticket & 1))
        return reply(ticket, gone)

    return {
        "queue.lost": lost,
        "queue.create_tube": simple(create),
        "queue.alter_tube": simple(alter),
        "queue.cfg": simple(cfg),
        "queue.identify": simple(identify),
        "queue.register_driver": simple(register_driver),
        "queue.statistics": simple(lambda _c, args: admin.statistics(engine, argument(args, 0))),
        "queue.stats": simple(lambda _c, args: admin.statistics(engine, argument(args, 0))),
        "queue.state": simple(lambda _connection, _args: core.state),
        "queue.tube": simple(lambda _c, args: admin.tube_names(engine, argument(args, 0))),
        "tandem.rescue_replay": simple(lambda _connection, _args: EMPTY),
        "box.broadcast": _broadcast(core),
        "box.info": simple(lambda _connection, _args: info(core)),
        "box.session.id": simple(lambda connection, _args: connection.id),
        "box.session.user": simple(lambda connection, _args: connection.user),
    }


def _broadcast(core: Core) -> Handler:
    """`box.broadcast(key, value)`: who watches the key on this node is told."""

    def broadcast(_connection: Connection, ticket: int, raw: bytes) -> bytes | None:
        if len(raw) > BROADCAST_BYTES_MAX:
            text = f"box.broadcast of {len(raw)} bytes, at most {BROADCAST_BYTES_MAX} are kept"
            raise QueueError(ER_ILLEGAL_PARAMS, text)
        args = plain(raw)
        key, value = argument(args, 0), argument(args, 1)
        if type(key) is not str or not 0 < len(key) <= KEY_CHARS_MAX:
            raise QueueError(ER_ILLEGAL_PARAMS, "Usage: box.broadcast(key, value), key is a string")
        if key.startswith("box."):
            raise QueueError(ER_ILLEGAL_PARAMS, f"Event key '{key}' is reserved")
        if len(core.watched) >= BROADCAST_MAX and key not in core.watched:
            raise QueueError(ER_ILLEGAL_PARAMS, f"more than {BROADCAST_MAX} keys were broadcast")
        core.publish(key, value)
        return reply(ticket, EMPTY)

    return broadcast


def must_fill(core: Core, connection: Connection, opts: Any) -> None:
    """Raise unless the user may put into the tube that is to take a new one's dead letters."""
    target = opts.get("dead_letter") if type(opts) is dict else None
    if type(target) is str:
        core.must(connection, f"queue.tube.{target}:put")


def session_uuid(value: Any) -> bytes | None:
    """The argument of identify: 16 bytes, sent as str or bin; None when left out."""
    if value is None or type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode("utf-8", "surrogateescape")
    raise failure("Invalid UUID format.")


def info(core: Core) -> dict[str, Any]:
    """`box.info`: what connectors' pools look at, and a little more."""
    identity = core.identity
    lsn = core.engine.lsn
    uuid = instance_uuid(identity.node_id)
    return {
        "version": f"{identity.version}-0-gtandemq",
        "id": 1,
        "ro": core.state != "RUNNING",
        "status": "running",
        "uuid": uuid,
        "name": identity.name,
        "package": "Tarantool",
        "cluster": {"uuid": identity.cluster_id},
        "listen": identity.listen,
        "pid": identity.pid,
        "uptime": max(0, core.engine.now - core.started_us) // SECOND_US,
        "lsn": lsn,
        "signature": lsn,
        "vclock": {1: lsn},
        "replication": {1: {"id": 1, "uuid": uuid, "lsn": lsn}},
        "queue": {
            "state": core.state,
            "term": core.term,
            "commit_lsn": core.commit_lsn,
            "promise": core.promise(),
            "master": _master(core),
        },
    }


def _master(core: Core) -> dict[str, str] | None:
    """Which node serves, and where clients reach it; None when this one cannot tell."""
    if core.state == "RUNNING":
        return {"name": core.identity.name, "address": core.identity.listen}
    other = core.other_master()
    return {"name": other[0], "address": other[1]} if other is not None else None


__all__ = ["VERSION", "handlers", "info", "session_uuid"]
