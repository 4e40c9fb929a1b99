"""A client of the cluster over asynctnt that says honestly what it knows of each call.

It knows both nodes' addresses (those of their proxies), stays with one as long as that serves, and
tries the other when it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from typing import Any

import asynctnt
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolError

READ_ONLY = 7
CONNECT_SECONDS = 2.0


class Refused(Exception):
    """An error came back: the call did nothing. code: of IPROTO."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(text)


class Unknown(Exception):
    """The call was sent and no answer came."""


class NotSent(Exception):
    """There is no connection; nothing was sent."""


class Client:
    """One connection at a time. nodes: port by name. pinned: never turn to another node."""

    def __init__(self, nodes: dict[str, int], first: str, *, pinned: bool = False) -> None:
        self.nodes = nodes
        self.node = first
        self.pinned = pinned
        self.connection: asynctnt.Connection | None = None
        #: When the present or last connection went away, by what the client saw.
        self.lost: float | None = None

    async def connect(self) -> None:
        """One attempt at the present node. Raises NotSent."""
        connection = asynctnt.Connection(
            host="127.0.0.1",
            port=self.nodes[self.node],
            fetch_schema=False,
            auto_refetch_schema=False,
            reconnect_timeout=0,
            connect_timeout=CONNECT_SECONDS,
            ping_timeout=0,
        )
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.connect()
        except (TarantoolError, OSError, TimeoutError, TypeError) as error:
            # TypeError: of asynctnt, when the connection goes before the greeting was read.
            await _close(connection)
            raise NotSent(str(error)) from error
        self.connection = connection

    async def drop(self) -> None:
        """Close the connection, if any; whatever it owed is gone."""
        if self.connection is not None:
            self.lost = time.monotonic()
            connection, self.connection = self.connection, None
            await _close(connection)

    async def turn(self) -> None:
        """Leave this node for the other one."""
        await self.drop()
        if not self.pinned:
            names = sorted(self.nodes)
            self.node = names[(names.index(self.node) + 1) % len(names)]

    async def call(self, name: str, *args: Any, seconds: float = 3.0) -> Any:
        """The reply's values. Raises Refused, Unknown or NotSent.

        After Unknown the connection is gone: an answer that comes later is nobody's.
        """
        connection = self.connection
        if connection is None or not connection.is_connected:
            await self.drop()
            raise NotSent("not connected")
        try:
            # The library's own time-out leaves the answer of a late reply to the next caller's
            # luck; this one ends the connection.
            async with asyncio.timeout(seconds):
                answer = await connection.call(name, list(args))
        except TarantoolDatabaseError as error:
            raise Refused(error.code, str(error.message)) from error
        except (TarantoolError, OSError, TimeoutError) as error:
            await self.drop()
            raise Unknown(f"{type(error).__name__}: {error}") from error
        return answer.body


async def _close(connection: asynctnt.Connection) -> None:
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        async with asyncio.timeout(2):
            await connection.disconnect()
