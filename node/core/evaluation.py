"""EVAL carried out: the handful of expressions connectors, pools and consoles send; no Lua.

A ticket may say what becomes of an answer before it leaves: a variable is set, or a console gets
its text.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgpack

from tandemq.model.errors import QueueError, failure
from tandemq_server.node.core import module_calls
from tandemq_server.node.core.connection import Ticket, finished
from tandemq_server.wire import console, lua
from tandemq_server.wire import evaluate as ev
from tandemq_server.wire.arguments import plain
from tandemq_server.wire.replies import empty_reply, error_reply, values_reply

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core

#: The longest expression any stock connector or pool sends is a tenth of this.
EVAL_BYTES_MAX = 4096


def evaluate(
    core: Core, connection: Connection, sync: int, expression: bytes, args: bytes
) -> bytes | None:
    """The reply to an EVAL, None when it comes later. Raises QueueError."""
    if len(expression) > EVAL_BYTES_MAX:
        raise failure(f"expression of {len(expression)} bytes, at most {EVAL_BYTES_MAX} are read")
    text = expression.decode("utf-8", "surrogateescape")
    values = plain(args)
    line = console.line_of(text, values)
    if line is not None:
        return _console(core, connection, sync, line)
    title = console.title_of(text)
    if title is not None:
        return values_reply(sync, [title])
    if console.completes(text):
        return values_reply(sync, [])
    understood = ev.understand(text, values, connection.variables)
    return _carry_out(core, connection, sync * 2, understood)


def _console(core: Core, connection: Connection, sync: int, line: str) -> bytes | None:
    """A line somebody typed: its values, or what was wrong with it, as text."""
    known = console.housekeeping(line)
    if known is not None:
        return console.text_reply(sync, known)
    ticket = Ticket(sync * 2)
    ticket.then = partial(console.as_text, sync)
    try:
        reply = _carry_out(core, connection, ticket, _typed(line, connection.variables))
    except QueueError as error:
        core.engine.store.rollback()
        core.errors += 1
        reply = error_reply(sync, error)
    return None if reply is None else ticket.then(reply)


def _typed(line: str, variables: ev.Names) -> ev.Evaluation:
    """As a console reads a line: an expression if it is one, else statements."""
    try:
        return ev.understand(f"return {line}", [], variables)
    except QueueError:
        return ev.understand(line, [], variables)


def _carry_out(
    core: Core, connection: Connection, ticket: int, understood: ev.Evaluation
) -> bytes | None:
    """The encoded answer, not yet `finished`; None when it comes later."""
    sync = ticket >> 1
    match understood:
        case ev.CallFunction():
            if understood.tube is not None and understood.tube not in core.engine.tubes:
                raise ev.no_such_tube(understood.tube)
            return _call(core, connection, ticket, understood)
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


def _call(core: Core, connection: Connection, ticket: int, call: ev.CallFunction) -> bytes | None:
    handler = core.find(connection, call.name.encode("utf-8", "surrogateescape"))
    args = msgpack.packb(call.args, unicode_errors="surrogateescape")
    if call.bind is None:
        reply = handler(connection, ticket, args)
        if call.returns or reply is None:
            return reply
        return values_reply(ticket >> 1, call.answer)
    shape = partial(_bound, connection.variables, call.bind, call.returns, ticket >> 1)
    inner = Ticket(ticket)
    inner.then = lambda reply: finished(ticket, shape(reply))
    reply = handler(connection, inner, args)
    return None if reply is None else shape(reply)


def _bound(variables: ev.Names, name: str, returns: bool, sync: int, reply: bytes) -> bytes:
    """The answer to `name = call`, which has been made: the variable holds its first value."""
    code, found = console.opened(reply)
    if code:
        return reply
    variables[name] = lua.Literal(found[0] if found else None)
    return reply if returns else empty_reply(sync)


def _dig(value: Any, path: tuple[str, ...]) -> Any:
    """What lies at a path of names, None where there is nothing."""
    for part in path:
        value = value.get(part) if type(value) is dict else None
    return value
