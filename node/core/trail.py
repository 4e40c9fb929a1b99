"""Who did which administrative thing: what of it is told, and how it ended.

Here: which calls are administrative, and notes of them, made when a name is looked up and when the
call ends; other calls cost nothing. Must not be here: where notes are kept (node/loop/trail.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack

from tandemq.model.errors import QueueError
from tandemq_server.node.core.connection import Ticket
from tandemq_server.wire.arguments import plain
from tandemq_server.wire.constants import ERROR_FLAG, KEY_ERROR_TEXT, KEY_TYPE

if TYPE_CHECKING:
    from tandemq_server.node.core.calls import Handler
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.permits import Permits

_METHODS = frozenset(
    {"drop", "truncate", "alter", "grant", "grant_role", "revoke", "revoke_role"}
    | {"pause", "resume", "bulk", "redrive", "release_all"}
)
_CALLS = frozenset(
    {"queue.create_tube", "queue.alter_tube", "queue.cfg", "box.cfg", "box.snapshot"}
    | {"xqueue.upgrade", "queue15.create_space", "queue15.truncate"}
    | {"tandem.import", "tandem.rescue_replay"}
)
#: Characters of arguments and of an error that are kept.
SHOWN_MAX = 1000
#: Parts of a key's name under which a secret may stand.
_SECRET = ("password", "secret", "token", "replication", "uri")
_LENGTH_BYTES = 5


@dataclass(frozen=True, slots=True)
class Noted:
    """One thing that somebody did, or tried.

    by: iproto, admin, signal or node. details: of the request, as JSON-able values. outcome: done,
    refused, failed or under way; error: why.
    """

    by: str
    user: str
    address: str
    action: str
    target: str = ""
    details: Any = None
    outcome: str = "done"
    error: str = ""


Note = Callable[[Noted], None]


def administrative(call: str) -> bool:
    """Whether a call, by its whole name, belongs in the trail."""
    if call.startswith(("queue.tube.", "box.space.")):
        return call.rpartition(":")[2] in _METHODS
    return call in _CALLS


def denied(core: Permits, connection: Connection, call: str, error: QueueError) -> None:
    """Somebody without the right to it asked for an administrative call."""
    if administrative(call):
        core.noted(_noted(connection, call, None, "refused", error.text))


def watched(core: Permits, call: str, handler: Handler) -> Handler:
    """The handler of a call; of an administrative one with notes of who made it."""
    if not administrative(call):
        return handler

    def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        details = None if call == "tandem.import" else _arguments(args)

        def ended(outcome: str, error: str = "") -> None:
            core.noted(_noted(connection, call, details, outcome, error))

        def later(reply: bytes) -> bytes:
            ended(*outcome_of(reply))
            return ticket.then(reply) if type(ticket) is Ticket else reply

        waiting = Ticket(ticket)
        waiting.then = later
        try:
            reply = handler(connection, waiting, args)
        except QueueError as error:
            ended("refused", error.text)
            raise
        except Exception as error:
            ended("failed", f"{type(error).__name__}: {error}")
            raise
        if reply is not None:
            ended(*outcome_of(reply))
        return reply

    return handle


def _noted(connection: Connection, call: str, details: Any, outcome: str, error: str) -> Noted:
    target, colon, method = call.rpartition(":")
    action = method if colon else call
    name = target.removeprefix("queue.tube.").removeprefix("box.space.")
    return Noted(
        "iproto",
        connection.user,
        connection.peer,
        action,
        name or (details[0] if details and type(details[0]) is str else ""),
        details,
        outcome,
        error[:SHOWN_MAX],
    )


def outcome_of(reply: bytes) -> tuple[str, str]:
    """(outcome, error) of an encoded reply."""
    unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=max(len(reply), 1))
    unpacker.feed(reply[_LENGTH_BYTES:])
    if not unpacker.unpack()[KEY_TYPE] & ERROR_FLAG:
        return "done", ""
    return "refused", str(unpacker.unpack().get(KEY_ERROR_TEXT, ""))


def _arguments(args: bytes) -> Any:
    try:
        return shown(plain(args))
    except Exception:
        return "not readable"  # the call itself says what is wrong with them


def shown(value: Any) -> Any:
    """A value of a request as it may be kept: bounded, JSON-able, without what may be a secret."""
    cleaned = _cleaned(value)
    text = json.dumps(cleaned)
    return cleaned if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


def _cleaned(value: Any, key: str = "") -> Any:
    if any(word in key.lower() for word in _SECRET):
        return "***"
    if isinstance(value, dict):
        return {str(name): _cleaned(one, str(name)) for name, one in list(value.items())[:100]}
    if isinstance(value, list | tuple):
        return [_cleaned(one) for one in value[:100]]
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes):
        return value[:SHOWN_MAX].hex()
    return str(value)[:SHOWN_MAX].encode("utf-8", "backslashreplace").decode()
