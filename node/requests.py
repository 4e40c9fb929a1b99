"""Requests other than CALL: greeting's follow-ups, reads of spaces, watchers, and what is refused.

Each returns an encoded reply, or None when the protocol wants none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack

from engine import select as spaces
from model.errors import (
    ER_ACCESS_DENIED,
    ER_UNKNOWN_REQUEST_TYPE,
    ER_UNSUPPORTED,
    QueueError,
    failure,
)
from node import module_calls
from wire import constants as c
from wire import evaluate as ev
from wire import schema
from wire.arguments import plain
from wire.auth import denied, parse_auth
from wire.replies import empty_reply, error_reply, ok_reply, packed_reply, values_reply
from wire.watch import parse_key

if TYPE_CHECKING:
    from node.connection import Connection
    from node.core import Core

_SQL = (c.EXECUTE, c.PREPARE)
_STREAMS = (c.BEGIN, c.COMMIT, c.ROLLBACK)
_WRITES = (c.INSERT, c.REPLACE, c.UPDATE, c.DELETE, c.UPSERT)
WATCHES = (c.WATCH, c.UNWATCH)
#: The longest expression any stock connector or pool sends is a tenth of this.
EVAL_BYTES_MAX = 4096
#: Logins that may fail on one connection before it is closed.
FAILED_LOGINS_MAX = 3


def execute(
    core: Core, connection: Connection, sync: int, rtype: int, name: Any, args: Any
) -> bytes | None:
    """One request of any type but CALL and CALL_16. Raises QueueError."""
    if rtype == c.PING:
        return promptly(core, connection, ok_reply(sync, {}))
    if rtype == c.MALFORMED:
        raise name
    if rtype == c.EVAL:
        return evaluate(core, connection, sync, name, args)
    if rtype == c.SELECT:
        return select(core, connection, sync, name)
    if rtype == c.ID:
        body = {
            c.KEY_VERSION: c.PROTOCOL_VERSION,
            c.KEY_FEATURES: list(c.FEATURES),
            c.KEY_AUTH_TYPE: c.AUTH_TYPE,
        }
        return promptly(core, connection, ok_reply(sync, body))
    if rtype == c.AUTH:
        try:
            answer = authenticate(core, connection, sync, name)
        except QueueError as error:
            # Nothing was changed that would have to be taken back.
            core.errors += 1
            connection.failed_logins += 1
            if connection.failed_logins >= FAILED_LOGINS_MAX:
                core.close(connection, "too many wrong passwords")
            answer = error_reply(sync, error)
        return promptly(core, connection, answer)
    if rtype in WATCHES or rtype == c.WATCH_ONCE:
        return watch(core, connection, sync, rtype, name)
    if rtype == c.SUBSCRIBE:
        subscribe(core, connection, sync)
        return None
    raise refused(rtype, connection)


def promptly(core: Core, connection: Connection, reply: bytes) -> None:
    """Answer whatever waits for its commit: a replica that logs in may be what it waits for."""
    core.prompt.append((connection, reply))


def refused(rtype: int, connection: Connection) -> QueueError:
    """A clean no to what a queue server does not do; the connection stays usable."""
    if rtype in _SQL:
        return QueueError(ER_UNSUPPORTED, "Tandem does not support SQL")
    if rtype in _STREAMS:
        return QueueError(ER_UNSUPPORTED, "Tandem does not support interactive transactions")
    if rtype in _WRITES:
        return access_denied("Write", "space", "", connection.user)
    return QueueError(ER_UNKNOWN_REQUEST_TYPE, f"Unknown request type {rtype}")


def access_denied(access: str, kind: str, name: str, user: str) -> QueueError:
    """Code 42, with the details connectors show."""
    return QueueError(
        ER_ACCESS_DENIED,
        f"{access} access to {kind} '{name}' is denied for user '{user}'",
        "AccessDeniedError",
        {"object_type": kind, "object_name": name, "access_type": access},
    )


def authenticate(core: Core, connection: Connection, sync: int, body: dict[int, Any]) -> bytes:
    """AUTH: on success the connection is that user's; on failure nothing changes."""
    methods = ("chap-sha1", "pap-sha256") if connection.secure else ("chap-sha1",)
    user, method, data = parse_auth(body, methods)
    back_to_guest = user == "guest" and not method
    if not back_to_guest and not core.accounts.authenticate(user, method, data, connection.salt):
        core.engine.report(f"login of {user!r} from {connection.peer} refused")
        raise denied()
    core.log_in(connection, user)
    return ok_reply(sync, {})


def subscribe(core: Core, connection: Connection, sync: int) -> None:
    """SUBSCRIBE: the connection becomes a replication link.

    Its reply leaves at once: in pair mode what waits for a replica must not keep one from coming.
    """
    if core.on_subscribe is None:
        raise QueueError(ER_UNSUPPORTED, "Tandem does not support replication of a node alone")
    if not core.may_replicate(connection):
        raise access_denied("Execute", "function", "replication", connection.user)
    core.on_subscribe(connection, ok_reply(sync, {}))


def watch(
    core: Core, connection: Connection, sync: int, rtype: int, body: dict[int, Any]
) -> bytes | None:
    """WATCH answers by an event, WATCH_ONCE by the value, UNWATCH not at all."""
    if rtype == c.WATCH_ONCE:
        key = parse_key(body)
        return values_reply(sync, [core.watched[key]] if key in core.watched else [])
    try:
        key = parse_key(body)
        if rtype == c.UNWATCH:
            connection.watchers.unwatch(key)
        else:
            value = core.watched.get(key)
            return connection.watchers.watch(key, sync, key in core.watched, value)
    except QueueError as error:
        # Neither request has a reply, so nobody can be told but the log.
        core.engine.report(f"{connection.peer}: watch refused: {error.text}")
    return None


# -- SELECT --------------------------------------------------------------------------------------


def select(core: Core, connection: Connection, sync: int, body: dict[int, Any]) -> bytes:
    """Rows of the schema spaces connectors fetch, and of our own."""
    wanted = schema.parse_select(body)
    if wanted.space_id in schema.SYSTEM_SPACES:
        return packed_reply(sync, *core.schema.select(connection.user, wanted))
    space = core.engine.store.spaces.get(wanted.space_id)
    if space is None:
        raise schema.no_such_space(wanted.space_id)
    user = connection.user
    if not core.allowed(user, f"space:{space.name}"):
        raise access_denied("Read", "space", space.name, user)
    rows = spaces.select(
        core.engine,
        space,
        wanted.index_id,
        wanted.key,
        wanted.iterator,
        wanted.offset,
        wanted.limit,
    )
    return values_reply(sync, rows)


# -- EVAL ----------------------------------------------------------------------------------------


def evaluate(
    core: Core, connection: Connection, sync: int, expression: bytes, args: bytes
) -> bytes | None:
    """The handful of expressions connectors and their pools send; no Lua behind them."""
    if len(expression) > EVAL_BYTES_MAX:
        raise failure(f"expression of {len(expression)} bytes, at most {EVAL_BYTES_MAX} are read")
    text = expression.decode("utf-8", "surrogateescape")
    understood = ev.understand(text, plain(args))
    match understood:
        case ev.CallFunction():
            if understood.tube is not None and understood.tube not in core.engine.tubes:
                raise ev.no_such_tube(understood.tube)
            return _call(core, connection, sync, understood)
        case ev.TubeExists():
            exists = understood.name in core.engine.tubes
            return values_reply(sync, [exists != understood.negated])
        case ev.DropIfExists():
            if understood.name in core.engine.tubes:
                drop = core.find(connection, f"queue.tube.{understood.name}:drop".encode())
                drop(connection, sync * 2, b"\x90")
            return values_reply(sync, understood.answer)
        case ev.BoxInfo():
            cfg = {"listen": core.identity.listen, "read_only": core.read_only}
            box = {"info": module_calls.info(core), "cfg": cfg}
            return values_reply(sync, [_dig(box, understood.path)])
        case ev.Value():
            return values_reply(sync, [understood.value, *understood.more])
        case ev.Nothing():
            return empty_reply(sync)


def _call(core: Core, connection: Connection, sync: int, call: ev.CallFunction) -> bytes | None:
    handler = core.find(connection, call.name.encode("utf-8", "surrogateescape"))
    args = msgpack.packb(call.args, unicode_errors="surrogateescape")
    reply = handler(connection, sync * 2, args)
    if call.returns or reply is None:
        return reply
    return values_reply(sync, call.answer)


def _dig(value: Any, path: tuple[str, ...]) -> Any:
    """What lies at a path of names, None where there is nothing."""
    for part in path:
        value = value.get(part) if type(value) is dict else None
    return value
