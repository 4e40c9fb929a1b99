"""Which node is writable: all are asked at once, the newest term wins.

Here: addresses, the question, and what counts as no answer. Must not be here: sessions, calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import asynctnt
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolError

from tandemq.client.errors import Refused, TandemError, Unavailable

logging.getLogger("asynctnt").setLevel(logging.CRITICAL)  # every failure is told by us

PROBE_SECONDS, GRACE_SECONDS, CLOSE_SECONDS = 2.0, 0.1, 1.0
READ_ONLY, LOADING = 7, 116
GREETING_BYTES = 128
#: What a connection that is no more, or a node that does not answer, looks like.
BROKEN = (TarantoolError, OSError, TimeoutError, asyncio.TimeoutError, EOFError)

Found = tuple[asynctnt.Connection, str, int]
Spawn = Callable[[Coroutine[Any, Any, None]], object]


def addresses(text: str) -> list[tuple[str, int]]:
    """Nodes out of `host:port,host:port`. Raises `ValueError` naming the wrong part."""
    found = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"nodes are host:port with commas between, not {part.strip()!r}")
        found.append((host.strip("[]"), int(port)))
    return found


async def find_writable(
    nodes: list[tuple[str, int]],
    login: dict[str, str | None],
    term: int,
    spawn: Spawn,
    **options: Any,
) -> Found:
    """(connection, `host:port`, term) of the RUNNING node of the newest term, `term` at least.

    The one way to find the master: client, Spark sink, command line and demo all ask here.
    `options` are the connection's. Whoever has not answered a moment after the first writable one
    is not waited for; `spawn` gets what closes its connection. Raises Refused if a node refuses the
    user and none is writable, else Unavailable with a reason for each node.
    """
    asking = {asyncio.create_task(_probe(host, port, login, term, options)) for host, port in nodes}
    best: Found | None = None
    refusals: list[Refused] = []
    try:
        while asking:
            limit = PROBE_SECONDS if best is None else GRACE_SECONDS
            done, asking = await asyncio.wait(
                asking, timeout=limit, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            for task in done:
                try:
                    found = task.result()
                except Refused as error:
                    refusals.append(error)
                    continue
                worse, best = (best, found) if best is None or found[2] > best[2] else (found, best)
                if worse is not None:
                    await quietly(worse[0])
    except BaseException:
        if best is not None:
            await quietly(best[0])
        raise
    finally:
        if asking:
            spawn(_dismiss(asking))
    if best is not None:
        return best
    for refusal in refusals:
        if not isinstance(refusal, Unavailable):
            raise refusal
    told = [str(refusal) for refusal in refusals]
    told += ["no answer from the others"] if told and asking else []
    raise Unavailable("no writable node: " + ("; ".join(told) or "none answered"))


async def _dismiss(asking: set[asyncio.Task[Found]]) -> None:
    """Let slow nodes answer: a connection that is given up half made is never closed."""
    for left in await asyncio.gather(*asking, return_exceptions=True):
        if isinstance(left, tuple):
            await quietly(left[0])


async def _probe(
    host: str, port: int, login: dict[str, str | None], term: int, options: dict[str, Any]
) -> Found:
    node = f"{host}:{port}"
    connection = asynctnt.Connection(
        host=host,
        port=port,
        fetch_schema=False,
        auto_refetch_schema=False,
        reconnect_timeout=0,
        connect_timeout=PROBE_SECONDS,
        **login,
        **options,
    )
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await greeted(host, port)
        await connection.connect()
        answer = await connection.call("box.info", [], timeout=PROBE_SECONDS)
        state, found = _state(node, answer.body)
        if state != "RUNNING":
            raise Unavailable(f"{node} is {state}")
        if found < term:
            raise Unavailable(f"{node} is of an older term than one already seen")
        return connection, node, found
    except TarantoolDatabaseError as error:
        await quietly(connection)
        kind = Unavailable if error.code in (READ_ONLY, LOADING) else Refused
        raise kind(f"{node}: {error.message}", error.code) from None
    except BROKEN as error:
        await quietly(connection)
        raise Unavailable(f"{node}: {str(error) or type(error).__name__}") from None
    except BaseException:
        await quietly(connection)
        raise


async def greeted(host: str, port: int) -> None:
    """Wait for the greeting, on a connection of its own.

    A node that is frozen is connected to by its kernel and says nothing; the connector would leave
    such a connection behind, open, each time.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        await reader.readexactly(GREETING_BYTES)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _state(node: str, body: Any) -> tuple[str, int]:
    try:
        queue = body[0]["queue"]
        return str(queue["state"]), int(queue["term"])
    except (LookupError, TypeError, ValueError):
        raise Refused(f"{node} is no Tandem node: its box.info tells no state and term") from None


async def quietly(connection: asynctnt.Connection) -> None:
    """Disconnect, whatever state it is in; a peer that reads nothing is not waited for."""
    with contextlib.suppress(*BROKEN, TandemError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await connection.disconnect()
