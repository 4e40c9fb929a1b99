"""Requests other than CALL: greeting's follow-ups, reads of spaces, watchers, and what is refused.

Each returns an encoded reply, or None when the protocol wants none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.errors import (
    ER_ACCESS_DENIED,
    ER_UNKNOWN_REQUEST_TYPE,
    ER_UNSUPPORTED,
    QueueError,
)
from tandemq_server.engine import reading as spaces
from tandemq_server.wire import constants as c
from tandemq_server.wire import schema
from tandemq_server.wire.auth import (
    DOWNSTREAM,
    NONCE_BYTES,
    UPSTREAM,
    check_link_proof,
    denied,
    is_guest_again,
    link_proof,
    parse_auth,
)
from tandemq_server.wire.packets import missing_field
from tandemq_server.wire.replies import error_reply, ok_reply, packed_reply, values_reply
from tandemq_server.wire.watch import parse_key

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core

_SQL = (c.EXECUTE, c.PREPARE)
_STREAMS = (c.BEGIN, c.COMMIT, c.ROLLBACK)
_WRITES = (c.INSERT, c.REPLACE, c.UPDATE, c.DELETE, c.UPSERT)
#: Of a name that nobody was let in by, so much goes into the log: names may be kilobytes long.
NAME_SHOWN = 200
WATCHES = (c.WATCH, c.UNWATCH)
#: Logins that may fail on one connection before it is closed.
FAILED_LOGINS_MAX = 3


def execute(
    core: Core, connection: Connection, sync: int, rtype: int, name: Any, args: Any
) -> bytes | None:
    """One request of any type but CALL and CALL_16. Raises QueueError."""
    if rtype == c.PING:
        promptly(core, connection, ok_reply(sync, {}))
        return None
    if rtype == c.MALFORMED:
        # Not raised: its traceback would lead to a frame that holds it, and with both the reader of
        # the packet, tens of kilobytes, would stay until somebody looks for such circles.
        core.errors += 1
        return error_reply(sync, name)
    if rtype == c.EVAL:
        # Few clients send Lua; a node that meets none of them needs no grammar.
        from tandemq_server.node.core import evaluation

        return evaluation.evaluate(core, connection, sync, name, args)
    if rtype == c.SELECT:
        return select(core, connection, sync, name)
    if rtype == c.ID:
        body = {
            c.KEY_VERSION: c.PROTOCOL_VERSION,
            c.KEY_FEATURES: list(c.FEATURES),
            c.KEY_AUTH_TYPE: c.AUTH_TYPE,
        }
        promptly(core, connection, ok_reply(sync, body))
        return None
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
        promptly(core, connection, answer)
        return None
    if rtype in WATCHES or rtype == c.WATCH_ONCE:
        return watch(core, connection, sync, rtype, name)
    if rtype == c.SUBSCRIBE:
        subscribe(core, connection, sync, name)
        return None
    raise refused(core, rtype, connection, name)


def promptly(core: Core, connection: Connection, reply: bytes) -> None:
    """Answer whatever waits for its commit: a replica that logs in may be what it waits for."""
    core.prompt.append((connection, reply))


def refused(core: Core, rtype: int, connection: Connection, body: dict[int, Any]) -> QueueError:
    """A clean no to what a queue server does not do; the connection stays usable."""
    if rtype in _SQL:
        return QueueError(ER_UNSUPPORTED, "Tandem does not support SQL")
    if rtype in _STREAMS:
        return QueueError(ER_UNSUPPORTED, "Tandem does not support interactive transactions")
    if rtype in _WRITES:
        return _write_refused(core, body.get(c.KEY_SPACE_ID), connection.user)
    return QueueError(ER_UNKNOWN_REQUEST_TYPE, f"Unknown request type {rtype}")


def _write_refused(core: Core, space_id: Any, user: str) -> QueueError:
    if type(space_id) is not int:
        return missing_field("space id")
    name = schema.SYSTEM_NAMES.get(space_id)
    if name is None:
        space = core.engine.store.spaces.get(space_id)
        if space is None:
            return schema.no_such_space(space_id)
        name = space.name
    return access_denied("Write", "space", name, user)


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
    back_to_guest = is_guest_again(user, method, data, connection.salt)
    if not back_to_guest and not core.accounts.authenticate(user, method, data, connection.salt):
        core.engine.report(f"login of {user[:NAME_SHOWN]!r} from {connection.peer} refused")
        raise denied()
    try:
        others = (one for one in core.connections.values() if one is not connection)
        core.quotas.check_connections(user, others)
    except QueueError as error:
        # No wrong password: nobody is made to wait for it.
        core.errors += 1
        return error_reply(sync, error)
    core.log_in(connection, user)
    return ok_reply(sync, {})


def subscribe(core: Core, connection: Connection, sync: int, body: dict[int, Any]) -> None:
    """SUBSCRIBE: the connection becomes a replication link, once both ends proved who they are.

    Its reply leaves at once: in pair mode what waits for a replica must not keep one from coming.
    """
    if core.on_subscribe is None:
        raise QueueError(ER_UNSUPPORTED, "Tandem does not support replication of a node alone")
    if not core.may_replicate(connection):
        raise access_denied("Execute", "function", "replication", connection.user)
    core.on_subscribe(connection, ok_reply(sync, _proved(core, connection, body)))


def _proved(core: Core, connection: Connection, body: dict[int, Any]) -> dict[int, Any]:
    """The upstream's proof, for a downstream that gave its own."""
    nonce, proof = body.get(c.KEY_NONCE), body.get(c.KEY_PROOF)
    if nonce is None and core.older_peers:
        return {}
    if type(nonce) is bytes and len(nonce) == NONCE_BYTES:
        for secret in core.accounts.link_secrets(connection.user):
            if check_link_proof(proof, secret, DOWNSTREAM, connection.salt, nonce):
                return {c.KEY_PROOF: link_proof(secret, UPSTREAM, connection.salt, nonce)}
    core.engine.report(f"SUBSCRIBE of {connection.user!r} from {connection.peer} without proof")
    raise denied()


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
