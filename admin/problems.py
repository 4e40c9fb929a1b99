"""Everything the API may refuse, as RFC 9457 problem details.

One table of kinds; their URNs are promises to programs, their texts are for people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from aiohttp import web

from tandemq_server.node.observe.answers import (
    NeedsForce,
    OperationRefused,
    RetryLater,
    UnknownNode,
)
from tandemq_server.node.observe.inventory_answers import UnknownTube

PROBLEM_JSON = "application/problem+json"
URN = "urn:tandemq:problem:"

#: Kind -> (HTTP status, title).
KINDS: dict[str, tuple[int, str]] = {
    "malformed-json": (400, "The body is not JSON"),
    "bad-request": (400, "The request is malformed"),
    "unauthorized": (401, "A bearer token is needed"),
    "foreign-host": (403, "The Host header names another site"),
    "cross-site": (403, "Another web site must not change this node"),
    "not-found": (404, "There is no such resource"),
    "method-not-allowed": (405, "The resource does not have this method"),
    "timeout": (408, "The body did not arrive in time"),
    "refused": (409, "This cannot be done now"),
    "needs-force": (409, "This may give up acknowledged records"),
    "too-large": (413, "The body is too large"),
    "not-json-type": (415, "The body's type must be application/json"),
    "invalid": (422, "A field is not acceptable"),
    "internal": (500, "The node failed to answer"),
    "unavailable": (503, "The node cannot answer now"),
}


class Problem(Exception):
    """One refusal. `more` are members beyond the standard ones."""

    def __init__(
        self,
        kind: str,
        detail: str,
        more: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status, self.title = KINDS[kind]
        self.detail = detail
        self.more = dict(more or {})
        self.headers = dict(headers or {})

    def body(self, instance: str | None = None) -> dict[str, Any]:
        standard: dict[str, Any] = {
            "type": URN + self.kind,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if instance is not None:
            standard["instance"] = instance
        return {**standard, **self.more}

    def response(self, instance: str) -> web.Response:
        return web.Response(
            status=self.status,
            text=json.dumps(self.body(instance)),
            content_type=PROBLEM_JSON,
            headers=self.headers,
        )


def invalid(field: str, detail: str, accepted: Any) -> Problem:
    """422: one field, what is wrong with it, what would be accepted."""
    item = {"field": field, "detail": detail, "accepted": accepted}
    return Problem("invalid", f"{field}: {detail}", {"errors": [item]})


def problem_of(error: Exception) -> Problem | None:
    """What a backend's exception means to the caller; None for one that nobody expected."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, NeedsForce):
        bound = {"missing": list(error.missing), "loss_bound": asdict(error.loss_bound)}
        return Problem("needs-force", error.reason, bound)
    if isinstance(error, OperationRefused):
        more: dict[str, Any] = {"missing": list(error.missing)}
        if error.report is not None:
            more["report"] = asdict(error.report)
        return Problem("refused", error.reason, more)
    if isinstance(error, UnknownNode):
        return invalid("to", str(error), list(error.known))
    if isinstance(error, UnknownTube):
        return invalid(error.field, str(error), "the name of a tube, see /v1/tubes")
    if isinstance(error, RetryLater):
        headers = {"Retry-After": str(error.retry_after_s)}
        return Problem("unavailable", error.reason, None, headers)
    if isinstance(error, web.HTTPException):
        return _of_http(error)
    return None


def _of_http(error: web.HTTPException) -> Problem:
    """The framework's own refusals in our form."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        methods = ", ".join(sorted(error.allowed_methods))
        detail = f"{error.method} is not one of {methods}"
        return Problem("method-not-allowed", detail, None, {"Allow": methods})
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return Problem("too-large", "the body is larger than this API ever needs")
    if error.status == 404:
        return Problem("not-found", "see /openapi.json for what there is")
    if error.status == 503:
        return Problem("unavailable", error.reason or "not now")
    if 400 <= error.status < 500:
        return Problem("bad-request", error.reason or "not understood")
    return Problem("internal", "see the node's log")
