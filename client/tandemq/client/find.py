"""Which node is writable: all are asked at once, the newest term wins.

Here: addresses, the question, and what counts as no answer. Must not be here: sessions, calls,
how one node is connected to (dial.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import asynctnt
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolError

from tandemq.client.dial import CLOSE_SECONDS, StockConnection, greeted
from tandemq.client.errors import Refused, TandemError, Unavailable, refusal
from tandemq.client.tls import Tls

logging.getLogger("asynctnt").setLevel(logging.CRITICAL)  # every failure is told by us

PROBE_SECONDS, GRACE_SECONDS = 2.0, 0.1
READ_ONLY, LOADING = 7, 116
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
    tls: Tls | None = None,
    **options: Any,
) -> Found:
    """(connection, `host:port`, term) of the RUNNING node of the newest term, `term` at least.

    The one way to find the master: client, Spark sink, command line and demo all ask here.
    `options` are the connection's. Whoever has not answered a moment after the first writable one
    is not waited for; `spawn` gets what closes its connection. Raises Refused if a node refuses the
    user, or its TLS and ours do not go together, and none is writable, else Unavailable with a
    reason for each node, or what is wrong with the files of `tls`.
    """
    try:
        secure = tls.dialling() if tls is not None else None
    except ValueError as error:
        # It may be in the middle of being renewed.
        raise Unavailable(f"no writable node: {error}") from None
    made = [
        StockConnection(
            secure, host=host, port=port, connect_timeout=PROBE_SECONDS, **login, **options
        )
        for host, port in nodes
    ]
    asking = {asyncio.create_task(_probe(one, tls is not None, term)) for one in made}
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
    for one in refusals:
        if not isinstance(one, Unavailable):
            raise one
    told = [str(one) for one in refusals]
    told += ["no answer from the others"] if told and asking else []
    raise Unavailable("no writable node: " + ("; ".join(told) or "none answered"))


async def _dismiss(asking: set[asyncio.Task[Found]]) -> None:
    """Let slow nodes answer: a connection that is given up half made is never closed."""
    for left in await asyncio.gather(*asking, return_exceptions=True):
        if isinstance(left, tuple):
            await quietly(left[0])


async def _probe(connection: StockConnection, secure: bool, term: int) -> Found:
    host, port = connection.host, connection.port
    node = f"{host}:{port}"
    try:
        if not secure:
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
        raise refusal(f"{node}: {error.message}", error.code, "box.info") from None
    except BROKEN as error:
        await quietly(connection)
        raise Unavailable(f"{node}: {str(error) or type(error).__name__}") from None
    except BaseException:
        await quietly(connection)
        raise


def _state(node: str, body: Any) -> tuple[str, int]:
    try:
        queue = body[0]["queue"]
        return str(queue["state"]), int(queue["term"])
    except (LookupError, TypeError, ValueError):
        raise Refused(f"{node} is not a Tandem node: its box.info has no state and term") from None


async def quietly(connection: asynctnt.Connection) -> None:
    """Disconnect, whatever state it is in; a peer that reads nothing is not waited for."""
    with contextlib.suppress(*BROKEN, TandemError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await connection.disconnect()
