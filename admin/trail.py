"""Notes of what is changed by the admin API: who asked, for what, and how it ended.

Must not be here: what is kept of a note, and where (node/loop/trail.py).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from aiohttp import web

from tandemq_server.admin.operations import Operation
from tandemq_server.admin.problems import Problem, problem_of
from tandemq_server.admin.security import SAFE_METHODS
from tandemq_server.node.core.trail import SHOWN_MAX, Noted, shown
from tandemq_server.node.observe.answers import Backend

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Of the request that an operation was begun by: its tasks inherit it.
_ASKED: ContextVar[tuple[str, str, str, Any]] = ContextVar("asked", default=("", "", "", None))
#: Members of a body that name what it is about.
_TARGETS = ("tube", "to", "action", "read_only")


class Noting:
    """Around every request; those that only read pass."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer of `handler`, noted. Raises what it raises."""
        if request.method in SAFE_METHODS:
            return await handler(request)
        address = _address(request)
        user = "token" if "Authorization" in request.headers else ""
        _ASKED.set((user, address, request.path, None))
        try:
            response = await handler(request)
        except Exception as error:
            problem = problem_of(error) or Problem("internal", type(error).__name__)
            outcome = "failed" if problem.status >= 500 else "refused"
            # Who may not ask at all is not who it says.
            who = "" if problem.status in (401, 403) else user
            self._note(request, who, address, outcome, f"{problem.kind}: {problem.detail}")
            raise
        outcome = "under way" if response.status == 202 else "done"
        self._note(request, user, address, outcome, "")
        return response

    def _note(
        self, request: web.Request, user: str, address: str, outcome: str, error: str
    ) -> None:
        body, known = _body(request), request.match_info.http_exception is None
        self.backend.trail.note(
            Noted(
                "admin",
                user,
                address,
                f"{request.method} {request.path}" if known else request.method,
                _target(body),
                shown(body) if known else request.path[:SHOWN_MAX],
                outcome,
                error[:SHOWN_MAX],
            )
        )

    def ended_late(self, operation: Operation) -> None:
        """An operation that was answered "under way" has ended."""
        user, address, path, _ = _ASKED.get()
        problem = operation.problem
        outcome = "done" if problem is None else "refused" if problem.status < 500 else "failed"
        error = "" if problem is None else f"{problem.kind}: {problem.detail}"[:SHOWN_MAX]
        what, target = shown(operation.target), _target(operation.target)
        self.backend.trail.note(
            Noted("admin", user, address, f"end of {path}", target, what, outcome, error)
        )


def _address(request: web.Request) -> str:
    name = request.transport.get_extra_info("peername") if request.transport is not None else None
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(request.remote or "")


def _body(request: web.Request) -> Any:
    """What was read of it; nothing where the request was refused before."""
    raw = getattr(request, "_read_bytes", None)
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return "not JSON"


def _target(body: Any) -> str:
    if isinstance(body, dict):
        for name in _TARGETS:
            if name in body:
                return str(body[name])[:SHOWN_MAX]
    return ""
