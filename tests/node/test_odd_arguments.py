"""Whatever a call is given, the answer is a clear error or a result, never a fault of ours.

Every call of the table with containers, keys that are maps, and numbers at the edges in each place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tandemq_server.engine import admin, policy
from tandemq_server.facades.registered import KNOWN
from tandemq_server.node.loop import plugins
from tests.node.harness import node

TUBES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "rec",
        "xqueue",
        {
            "fields": {"status": "status", "runat": "runat"},
            "format": [["id", "string"], ["status", "string"], ["runat", "number"]],
            "indexes": [
                {"parts": ["id"]},
                {"parts": ["status", "id"]},
                {"parts": ["runat"]},
            ],
        },
    ),
    ("space0", "queue15", {}),
    ("ttl", "fifottl", {}),
    ("limf", "limfifottl", {"capacity": 5}),
    ("ut", "utubettl", {}),
)
#: Good arguments that a bad one follows.
FIRST: tuple[list[Any], ...] = ([], [0], ["fifo"], ["space0"], ["space0", "x"], ["x"], ["x", {}])
OPTIONS = sorted({"ttl", "ttr", "pri", "delay", "utube", "key", "window", "headers", "wait", "id"})
ODD: tuple[Any, ...] = (
    *({}, {"a": {}}, {1: [{}]}, [{}], [[]], [[{}]], [{"tube": {}}]),
    *({name: {} for name in OPTIONS}, *({name: {}} for name in OPTIONS)),
    *({name: {}} for name in sorted({"to", "limit", "state", "ids"} | policy.OPTIONS)),
    *({b"x": 1}, {None: 1}, {1.5: 2}, {True: {}}, {"id": [1]}),
    *(1.5, float("nan"), float("inf"), True, None, -1, 2**64 - 1, b"\xff", ""),
)
#: Of these the rim has to be there, or they take away what the others are tried on.
LEFT_OUT = ("box.snapshot", "box.cfg", ":drop")


def trials(calls: list[str]) -> Iterator[list[tuple[str, list[Any]]]]:
    for call in calls:
        if not call.endswith(LEFT_OUT):
            yield [(call, [*first, odd]) for first in FIRST for odd in ODD]


async def internal_errors(wire: Any, some: list[tuple[str, list[Any]]]) -> list[str]:
    """Send them all, and one more behind: a call that waits says nothing, that one is answered."""
    sent = {wire.send_call(call, *args): (call, args) for call, args in some}
    last = wire.send_call("box.session.id")
    found = []
    while True:
        got, code, body = await asyncio.wait_for(wire.receive(), 30)
        if got == last:
            return found
        if code and "Internal error" in body[0x31]:
            found.append(f"{sent[got]}: {body[0x31]}")


@pytest.mark.asyncio
async def test_no_argument_of_any_call_is_an_internal_error() -> None:
    async with node() as bench:
        engine = bench.core.engine
        engine.drivers.update(plugins.load_drivers(KNOWN, {}))
        for name, kind, options in TUBES:
            admin.create_tube(engine, name, kind, options)
        tried = 0
        for some in trials(sorted(bench.core.handlers)):
            wire = await bench.dial()
            assert not await internal_errors(wire, some)
            wire.writer.close()
            tried += len(some)
        assert tried > 20_000
