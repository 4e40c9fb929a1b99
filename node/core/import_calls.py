"""Calls of `tandemq import`: tuples as another server stores them, payloads untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq_server.engine import importing
from tandemq_server.engine.importing import Tuple
from tandemq_server.node.core.calls import Handler, argument, reply
from tandemq_server.wire.arguments import check_nesting, new_reader, plain
from tandemq_server.wire.fields import split_fields

if TYPE_CHECKING:
    from tandemq_server.engine.tube import EngineTube
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core


def handlers(core: Core) -> dict[str, Handler]:
    """Names to handlers, bound to `core`."""
    engine = core.engine

    def take_in(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        """tube, source, then tuples one by one."""
        (name, source), rest = split_fields(args, 2)
        tube = engine.tubes.get(name) if type(name) is str else None
        if tube is None:
            raise failure(f"Tube {name} does not exist")
        return reply(ticket, importing.take_in(engine, tube, source, _tuples(core, tube, rest)))

    def state(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        return reply(ticket, importing.state(engine, argument(plain(args), 0)))

    return {"tandem.import": take_in, "tandem.import_state": state}


def _tuples(core: Core, tube: EngineTube, raw: bytes) -> list[Tuple]:
    fixed = importing.fixed_fields(tube)
    if fixed is None:
        return [(_record(core, one), b"") for one in each(raw)]
    many = tube.layout() is not None
    found: list[Tuple] = []
    for one in each(raw):
        _check_array(one)
        fields, rest = split_fields(one, fixed)
        payload = rest
        if not many:
            # One field: the array it came in is taken off.
            if rest[0] != 0x91:
                raise failure(f"Task {fields[0]} is not of the tube's layout: number of fields")
            payload = rest[1:]
        if len(payload) > core.limits.payload_bytes_max:
            raise failure(f"Task {fields[0]} is larger than payload_bytes_max")
        check_nesting(payload, core.limits.nesting_max)
        found.append((fields, payload))
    return found


def _record(core: Core, one: bytes) -> list[Any]:
    """All fields of a record; they are the user's own, and kept decoded."""
    _check_array(one)
    if len(one) > core.limits.payload_bytes_max:
        raise failure("A record is larger than payload_bytes_max")
    check_nesting(one, core.limits.nesting_max)
    return plain(one)


def _check_array(one: bytes) -> None:
    if one[0] & 0xF0 != 0x90 and one[0] not in (0xDC, 0xDD):
        raise failure("Invalid tuple: expected an array")


def each(raw: bytes) -> list[bytes]:
    """The elements of a MessagePack array, each as it stands."""
    reader = new_reader(max(len(raw), 1))
    reader.feed(raw)
    found = []
    for _ in range(reader.read_array_header()):
        start = reader.tell()
        reader.skip()
        found.append(raw[start : reader.tell()])
    return found
