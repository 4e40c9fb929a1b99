"""One handler per route. GET handlers read and change nothing; the others start an operation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from aiohttp import web

from tandemq_server.admin.bodies import (
    EmptyBody,
    FailoverRequest,
    ReadOnlyRequest,
    SwitchoverRequest,
    read_body,
)
from tandemq_server.admin.console_files import ConsoleFiles
from tandemq_server.admin.inventory_handlers import InventoryHandlers
from tandemq_server.admin.openapi import document
from tandemq_server.admin.operations import Operation, Operations
from tandemq_server.admin.prometheus import render
from tandemq_server.admin.security import AdminConfig
from tandemq_server.admin.stream import Streams
from tandemq_server.node.observe.answers import Backend, NodeStatus

STATUS_PATH = "/v1/status"


class Handlers:
    """What the routes of server.py lead to."""

    def __init__(
        self,
        backend: Backend,
        config: AdminConfig,
        operations: Operations,
        streams: Streams,
    ) -> None:
        self.backend = backend
        self.config = config
        self.operations = operations
        self.streams = streams
        self.inventory = InventoryHandlers(backend, config)
        self._rendering = asyncio.Lock()
        self._document = json.dumps(document())

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(STATUS_PATH, self.status),
            web.get("/v1/cluster", self.cluster),
            web.get("/v1/overview", self.overview),
            web.put("/v1/read_only", self.read_only),
            web.post("/v1/switchover", self.switchover),
            web.post("/v1/solo", self.solo),
            web.post("/v1/failover", self.failover),
            web.post("/v1/snapshot", self.snapshot),
            web.post("/v1/reload", self.reload),
            *self.inventory.routes(),
            *ConsoleFiles().routes(),
            web.get("/v1/events", self.streams.serve, allow_head=False),
            web.get("/metrics", self.metrics),
            web.get("/openapi.json", self.openapi),
            *(
                web.get(f"/{name}", partial(self.probe, check=check))
                for name, check in PROBE_CHECKS.items()
            ),
        ]

    # -- reads -----------------------------------------------------------------------------------

    async def status(self, request: web.Request) -> web.Response:
        last = self.operations.last
        body = asdict(self.backend.status())
        body["operation"] = None if last is None else last.body(self.operations.clock())
        return answer(body)

    async def cluster(self, request: web.Request) -> web.Response:
        return answer(asdict(self.backend.cluster()))

    async def overview(self, request: web.Request) -> web.Response:
        return answer(asdict(self.backend.overview()))

    async def metrics(self, request: web.Request) -> web.Response:
        """Read here in less than a millisecond; written out off the loop, one at a time."""
        async with self._rendering:
            node = self.backend.metrics()
            accept = request.headers.get("Accept", "")
            body, content_type = await asyncio.to_thread(render, node, accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def openapi(self, request: web.Request) -> web.Response:
        return web.Response(text=self._document, content_type="application/json")

    async def probe(
        self, request: web.Request, check: Callable[[NodeStatus], str | None]
    ) -> web.Response:
        """200 or 503 and why, in a body no larger than a load balancer's log line."""
        try:
            status = self.backend.status()
        except Exception:
            return answer({"ok": False, "state": None, "reason": "no status"}, 503)
        reason = check(status)
        body = {"ok": reason is None, "state": status.state, "reason": reason}
        return answer(body, 200 if reason is None else 503)

    # -- operations ------------------------------------------------------------------------------

    async def read_only(self, request: web.Request) -> web.Response:
        body = await read_body(request, ReadOnlyRequest, self.config.body_s)
        flip = partial(self.backend.set_read_only, body["read_only"], body["force"])
        return self._done(await self.operations.run("read_only", body, flip))

    async def switchover(self, request: web.Request) -> web.Response:
        body = await read_body(request, SwitchoverRequest, self.config.body_s)
        switch = partial(self.backend.switchover, body["to"], body["dry_run"])
        kind = "switchover_dry_run" if body["dry_run"] else "switchover"
        operation = await self.operations.run(kind, {"to": body["to"]}, switch)
        return self._done(operation)

    async def solo(self, request: web.Request) -> web.Response:
        await read_body(request, EmptyBody, self.config.body_s)
        return self._done(await self.operations.run("solo", {}, self.backend.solo))

    async def failover(self, request: web.Request) -> web.Response:
        body = await read_body(request, FailoverRequest, self.config.body_s)
        change = partial(self.backend.failover, body["action"])
        return self._done(await self.operations.run("failover", body, change))

    async def reload(self, request: web.Request) -> web.Response:
        await read_body(request, EmptyBody, self.config.body_s)
        return self._done(await self.operations.run("reload", {}, self.backend.reload))

    async def snapshot(self, request: web.Request) -> web.Response:
        await read_body(request, EmptyBody, self.config.body_s)
        return self._done(await self.operations.run("snapshot", {}, self.backend.snapshot))

    def _done(self, operation: Operation) -> web.Response:
        """200 with the result, 202 and where to look, or the problem."""
        if operation.problem is not None:
            raise operation.problem
        if operation.ended is None:
            body = operation.body(self.operations.clock())
            return answer(body, 202, {"Location": STATUS_PATH, "Retry-After": "1"})
        assert operation.result is not None
        return answer(operation.result)


def answer(
    body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.json_response(body, status=status, headers=headers)


# -- probes: None when the answer is 200, else the reason ------------------------------------------


def _primary(status: NodeStatus) -> str | None:
    """May be written to: RUNNING, and it has proved so by a record of its own term."""
    if status.writable and status.live:
        return None
    return status.problem or status.ro_reason or f"state is {status.state}"


def _replica(status: NodeStatus) -> str | None:
    """A read-only copy that is whole, however old."""
    if not status.live:
        return status.problem or "the log failed"
    if status.state != "WAITING" and not (status.state == "INIT" and status.read_only):
        return f"state is {status.state}"
    return None if status.complete else "the copy is not complete"


def _health(status: NodeStatus) -> str | None:
    """Recovered, and its log works; any role."""
    if not status.live:
        return status.problem or "the log failed"
    return "state is INIT" if status.state == "INIT" and not status.read_only else None


def _liveness(status: NodeStatus) -> str | None:
    """False only when a restart is the way out."""
    return None if status.live else status.problem or "the log failed"


def _readiness(status: NodeStatus) -> str | None:
    """Worth sending clients to: writable, or a whole copy that is being fed, and in order."""
    if _primary(status) is None:
        return None
    reason = _replica(status)
    if reason is None and not status.following:
        return "no writable upstream feeds this copy"
    return reason or status.problem


PROBE_CHECKS: dict[str, Callable[[NodeStatus], str | None]] = {
    "primary": _primary,
    "replica": _replica,
    "health": _health,
    "liveness": _liveness,
    "readiness": _readiness,
}
