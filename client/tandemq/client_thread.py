"""A client in a thread of its own, for a framework that calls from its threads and forks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

from tandemq.client.api import Client
from tandemq.client.sync import _Loop as LoopThread


class ClientThread:
    """Connected when it is first used."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pid = os.getpid()
        self._loop: LoopThread | None = None
        self._client: Client | None = None

    async def _make(self) -> Client:
        raise NotImplementedError

    @property
    def tandem(self) -> Client:
        if self._client is None:
            self._loop = LoopThread()
            self._client = self._loop.run(self._make())
        return self._client

    @property
    def is_elsewhere(self) -> bool:
        """This process is a child of the one that connected: what is in hand is the parent's."""
        return os.getpid() != self._pid

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What it returns, from the client's thread."""
        assert self._loop is not None
        return self._loop.run(work)

    def call(self, name: str, *args: Any) -> list[Any]:
        """Any call of the server, repeated when unanswered."""
        found: list[Any] = self.run(self.tandem.call(name, *args, repeat=True))
        return found

    def spawn(self, work: Coroutine[Any, Any, None]) -> Any:
        """Something that goes on beside; can be cancelled."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop.loop)

    def soon(self, what: Callable[[], object]) -> None:
        if self._loop is not None and not self._loop.loop.is_closed():
            self._loop.loop.call_soon_threadsafe(what)

    def leave(self) -> None:
        client, loop = self._client, self._loop
        self._client = self._loop = None
        if client is not None and loop is not None:
            loop.run(client.close())
            loop.stop()
