"""The admin API's listener: checks around every request, one place where errors get their form.

`AdminServer(backend, config, report).start()`; `stop()` ends streams and operations.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from tandemq_server.admin.bodies import BODY_MAX
from tandemq_server.admin.handlers import Handlers
from tandemq_server.admin.operations import Operations, Report
from tandemq_server.admin.problems import Problem, problem_of
from tandemq_server.admin.security import AdminConfig, RequestGuard
from tandemq_server.admin.stream import Streams
from tandemq_server.admin.trail import Noting
from tandemq_server.admin.waiting_room import HttpListener
from tandemq_server.node.observe.answers import Backend

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: How often one caller's refusals are logged, and for how many callers that is remembered.
REPORT_EVERY_S = 60.0
REFUSALS_MAX = 1000
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
#: The framework's own logger is silent: what matters goes to `report`, nothing twice.
_SILENT = logging.Logger("tandemq.admin", logging.CRITICAL + 1)


class AdminServer:
    """One API. report(text, error or None) writes a line to the node's log."""

    def __init__(self, backend: Backend, config: AdminConfig, report: Report) -> None:
        """Raises `AdminRefused` when the configuration would leave the node open."""
        config.check()
        self.config = config
        self.report = report
        self.gate = RequestGuard(config)
        self.operations = Operations(config.flip_wait_s, time.monotonic, report)
        self.noting = Noting(backend)
        self.operations.ended_late = self.noting.ended_late
        self.streams = Streams(backend, config)
        self.handlers = Handlers(backend, config, self.operations, self.streams)
        self._refusals: dict[tuple[str, str], float] = {}
        self._http: HttpListener | None = None

    def app(self) -> web.Application:
        """The routes with all their checks."""
        app = web.Application(middlewares=[self._problems, self._checked], client_max_size=BODY_MAX)
        app.add_routes(self.handlers.routes())
        app.on_response_prepare.append(_add_headers)
        return app

    async def start(self) -> tuple[str, int]:
        """Listen; returns the address bound. Raises OSError."""
        self._http = HttpListener(self.app(), self.config, logger=_SILENT)
        return await self._http.open()

    async def stop(self) -> None:
        """Stop listening, end streams, give up operations still under way."""
        if self._http is not None:
            self._http.close()
        self.streams.close()
        await self.operations.stop()
        if self._http is not None:
            await self._http.cleanup()

    # -- around every request --------------------------------------------------------------------

    @web.middleware
    async def _problems(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        room = self._http.room if self._http is not None else None
        if room is not None:
            room.asks(request.protocol)
        try:
            return await self.noting(request, handler)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                self.report(f"admin {request.method} {request.path} failed", error)
                problem = Problem("internal", "see the node's log")
            elif problem.status in (401, 403):
                self._report_refusal(request.remote or "?", problem)
            return problem.response(request.path)
        finally:
            if room is not None:
                room.answered(request.protocol)

    def _report_refusal(self, remote: str, problem: Problem) -> None:
        """One line per caller and cause a minute, so that nobody can fill the log."""
        now, key = time.monotonic(), (remote, problem.kind)
        if now - self._refusals.get(key, -REPORT_EVERY_S) < REPORT_EVERY_S:
            return
        if len(self._refusals) >= REFUSALS_MAX:
            self._refusals.clear()
        self._refusals[key] = now
        self.report(f"admin {remote}: {problem.kind}: {problem.detail}", None)

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.gate.check_caller(request)
        unknown = request.match_info.http_exception
        if unknown is not None:
            raise unknown
        self.gate.check_change(request)
        return await handler(request)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
