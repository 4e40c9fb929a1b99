"""GET /v1/events: the bus of events.py as server-sent events.

A listener that does not read is cut off; a silent stream says every now and then that it lives.
"""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from tandemq_server.admin.problems import Problem
from tandemq_server.admin.security import AdminConfig
from tandemq_server.node.observe.answers import Backend
from tandemq_server.node.observe.events import BusEvent, Subscription

#: How long a browser waits before it comes back, in milliseconds.
RETRY_MS = 1000
_HEARTBEAT = b": alive\n\n"


class Streams:
    """All event streams of one API."""

    def __init__(self, backend: Backend, config: AdminConfig) -> None:
        self.backend = backend
        self.config = config
        self._open: dict[Subscription, None] = {}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One listener, until it goes, stops reading, or the node ends."""
        if len(self._open) >= self.config.streams_max:
            detail = f"{self.config.streams_max} event streams are open already"
            raise Problem("unavailable", detail, None, {"Retry-After": "10"})
        last_id = request.headers.get("Last-Event-ID", "")[:100]
        subscription = self.backend.subscribe(last_id or None)
        self._open[subscription] = None
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        try:
            await response.prepare(request)
            await self._write(response, f"retry: {RETRY_MS}\n\n".encode())
            await self._pump(response, subscription)
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._open.pop(subscription, None)
            subscription.close()
        return response

    async def _pump(self, response: web.StreamResponse, subscription: Subscription) -> None:
        following = asyncio.ensure_future(anext(subscription, None))
        try:
            while True:
                done, _ = await asyncio.wait({following}, timeout=self.config.heartbeat_s)
                if not done:
                    await self._write(response, _HEARTBEAT)
                    continue
                event = following.result()
                if event is None:
                    return
                await self._write(response, encode(event))
                following = asyncio.ensure_future(anext(subscription, None))
        finally:
            following.cancel()

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(self.config.write_s):
            await response.write(data)

    def close(self) -> None:
        """End every stream."""
        for subscription in list(self._open):
            subscription.close()


def encode(event: BusEvent) -> bytes:
    """One event on the wire; JSON has no raw line breaks, so `data` is one line."""
    head = f"id: {event.id}\n" if event.id else ""
    return f"{head}event: {event.kind}\ndata: {json.dumps(event.data, default=str)}\n\n".encode()
