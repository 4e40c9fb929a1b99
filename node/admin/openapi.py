"""The API's document, OpenAPI 3.1, as data. Schemas of answers come from backend.py's dataclasses.

A test holds it against the routes, and every answer of the other tests against its schemas.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from node.admin import backend
from node.admin.bodies import NAME_MAX
from node.admin.problems import KINDS, PROBLEM_JSON, URN
from node.admin.security import PROBES

Json = dict[str, Any]
JSON = "application/json"
VERSION = "1"
_PLAIN: dict[type, Json] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
}
_VALUES = (
    backend.ClusterNode,
    backend.ClusterStatus,
    backend.FlipResult,
    backend.Lag,
    backend.LossBound,
    backend.NodeStatus,
    backend.Peer,
    backend.SoloResult,
    backend.Step,
    backend.SwitchReport,
    backend.Term,
    backend.Transition,
)


def document() -> Json:
    """The whole document, ready for `json.dumps`."""
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Tandem admin API",
            "version": VERSION,
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": (
                "State, switch-over, probes and metrics of one node of a replicated task queue. "
                "Errors are problem details (RFC 9457)."
            ),
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed when the node has a token; always so off loopback.",
                }
            },
            "schemas": _schemas(),
            "responses": _problem_responses(),
        },
    }


# -- schemas -------------------------------------------------------------------------------------


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _nullable(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(properties: Json, optional: tuple[str, ...] = (), closed: bool = True) -> Json:
    required = [name for name in properties if name not in optional]
    found: Json = {"type": "object", "properties": properties, "additionalProperties": not closed}
    if required:
        found["required"] = required
    return found


def schema_of(hint: Any) -> Json:
    """The schema of one annotation of backend.py."""
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return _ref(hint.__name__)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"type": "string", "enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": schema_of(args[0])}
    assert origin in (Union, types.UnionType), hint
    assert args[1] is type(None), hint
    return _nullable(schema_of(args[0]))


def _of_dataclass(value: type) -> Json:
    hints = get_type_hints(value)
    names = [field.name for field in dataclasses.fields(value)]
    schema = _object({name: schema_of(hints[name]) for name in names})
    schema["description"] = inspect.cleandoc(value.__doc__ or "")
    return schema


def _schemas() -> Json:
    schemas = {value.__name__: _of_dataclass(value) for value in _VALUES}
    status = schemas["NodeStatus"]
    status["properties"]["operation"] = _nullable(_ref("Operation"))
    status["required"].append("operation")
    anything = {"type": "object"}
    schemas["Operation"] = _object(
        {
            "id": {"type": "integer"},
            "kind": {"type": "string"},
            "target": anything,
            "outcome": {"type": "string", "enum": ["under_way", "done", "failed"]},
            "seconds": {"type": "number"},
            "result": _nullable(anything),
            "problem": _nullable(_ref("Problem")),
        }
    )
    schemas["SnapshotResult"] = _object({"lsn": {"type": "integer"}})
    schemas["Probe"] = _object(
        {
            "ok": {"type": "boolean"},
            "state": _nullable(schema_of(backend.State)),
            "reason": _nullable({"type": "string"}),
        }
    )
    schemas["ReadOnlyRequest"] = _object(
        {"read_only": {"type": "boolean"}, "force": {"type": "boolean", "default": False}},
        optional=("force",),
    )
    schemas["SwitchoverRequest"] = _object(
        {
            "to": {"type": "string", "minLength": 1, "maxLength": NAME_MAX},
            "dry_run": {"type": "boolean", "default": False},
        },
        optional=("dry_run",),
    )
    schemas["Empty"] = _object({})
    return {**schemas, **_problem_schemas()}


def _problem_schemas() -> Json:
    standard: Json = {
        "type": {"type": "string", "enum": [URN + kind for kind in KINDS]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
    }
    missing = {"type": "array", "items": {"type": "string"}}
    error = _object({"field": {"type": "string"}, "detail": {"type": "string"}, "accepted": {}})
    more: Json = {
        "missing": missing,
        "loss_bound": _ref("LossBound"),
        "report": _ref("SwitchReport"),
        "errors": {"type": "array", "items": error},
    }
    return {"Problem": _object({**standard, **more}, optional=("instance", *more))}


def _problem_responses() -> Json:
    """One response a status, telling all the kinds it has."""
    by_status: dict[int, list[str]] = {}
    for kind, (status, title) in KINDS.items():
        by_status.setdefault(status, []).append(f"{title} (`{URN}{kind}`).")
    responses: Json = {}
    for status, texts in by_status.items():
        responses[f"problem{status}"] = {
            "description": " ".join(texts),
            "content": {PROBLEM_JSON: {"schema": _ref("Problem")}},
        }
    text = {"schema": {"type": "string"}}
    responses["problem401"]["headers"] = {"WWW-Authenticate": {**text, "required": True}}
    responses["problem405"]["headers"] = {"Allow": {**text, "required": True}}
    responses["problem415"]["headers"] = {"Accept": {**text, "required": True}}
    responses["problem503"]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return responses


# -- paths ---------------------------------------------------------------------------------------

_READ = (401, 403, 500, 503)
_CHANGE = (400, 401, 403, 408, 409, 413, 415, 422, 500, 503)


def _problems(statuses: tuple[int, ...]) -> Json:
    return {str(status): {"$ref": f"#/components/responses/problem{status}"} for status in statuses}


def _content(schema: Json, media: str = JSON) -> Json:
    return {media: {"schema": schema}}


def _get(name: str, summary: str, content: Json, **more: Any) -> Json:
    """GET and, with the same answers but no body, HEAD."""
    ok = {"200": {"description": summary, "content": content}}
    get = {
        "operationId": name,
        "summary": summary,
        "responses": {**ok, **_problems(_READ)},
        **more,
    }
    return {"get": get, "head": _head(get)}


def _head(get: Json) -> Json:
    responses = {
        status: {"description": response.get("description", "As for GET, without a body.")}
        for status, response in get["responses"].items()
    }
    return {**get, "operationId": get["operationId"] + "Head", "responses": responses}


def _change(name: str, summary: str, body: str, answer: str, details: str) -> Json:
    return {
        "operationId": name,
        "summary": summary,
        "description": details,
        "requestBody": {"required": body != "Empty", "content": _content(_ref(body))},
        "responses": {
            "200": {"description": "It is done.", "content": _content(_ref(answer))},
            "202": {
                "description": "It is under way; /v1/status says what becomes of it.",
                "headers": {
                    "Location": {"schema": {"type": "string"}, "required": True},
                    "Retry-After": {"schema": {"type": "integer"}},
                },
                "content": _content(_ref("Operation")),
            },
            **_problems(_CHANGE),
        },
    }


_EVENTS: Json = {
    "operationId": "events",
    "summary": "Changes as they happen, as server-sent events.",
    "description": (
        "Events `state`, `term`, `lag` and `peers`, each with the present value as JSON; the "
        "present state first, or what came after Last-Event-ID where that is still known. "
        "`reset`: events were skipped because they were not read, the present state follows. "
        "A comment line now and then says that the stream lives."
    ),
    "parameters": [
        {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": "The id of the last event seen; one that is not known is ignored.",
        }
    ],
    "responses": {
        "200": {
            "description": "The stream.",
            "content": _content({"type": "string"}, "text/event-stream"),
        },
        **_problems(_READ),
    },
}

_PROBE_TEXTS = {
    "primary": "Whether this node may be written to.",
    "replica": "Whether this node is a read-only copy that is whole.",
    "health": "Whether this node has recovered and its log works, in any role.",
    "liveness": "Whether this process should go on; restart it when not.",
    "readiness": "Whether clients should be sent here: writable, or a copy that is being fed.",
}


def _probe(name: str) -> Json:
    text = _PROBE_TEXTS[name]
    content = _content(_ref("Probe"))
    get = {
        "operationId": name,
        "summary": text,
        "security": [{}],
        "responses": {
            "200": {"description": "Yes.", "content": content},
            "503": {"description": "No, and why.", "content": content},
            **_problems((403,)),
        },
    }
    return {"get": get, "head": _head(get)}


def _paths() -> Json:
    metrics = {
        "text/plain": {"schema": {"type": "string"}},
        "application/openmetrics-text": {"schema": {"type": "string"}},
    }
    anyone: Json = {"security": [{}]}
    paths: Json = {
        "/v1/status": _get("status", "This node.", _content(_ref("NodeStatus"))),
        "/v1/cluster": _get(
            "cluster", "All nodes as this one sees them.", _content(_ref("ClusterStatus"))
        ),
        "/v1/read_only": {
            "put": _change(
                "readOnly",
                "Make this node a replica, or the master.",
                "ReadOnlyRequest",
                "FlipResult",
                "Answers when the new state is reached. A promotion that may give up acknowledged "
                "records is refused with 409 and `loss_bound` unless `force` is true.",
            )
        },
        "/v1/switchover": {
            "post": _change(
                "switchover",
                "Flip both nodes in one planned step.",
                "SwitchoverRequest",
                "SwitchReport",
                "A dry run changes nothing and says what is missing. A switch-over that fails "
                "half-way is rolled back and answered with 409 and its report.",
            )
        },
        "/v1/solo": {
            "post": _change(
                "solo",
                "In pair mode, go on without the replica.",
                "Empty",
                "SoloResult",
                "Opens a new term with the solo flag. The node returns to pair by itself.",
            )
        },
        "/v1/snapshot": {
            "post": _change(
                "snapshot",
                "Write a snapshot now.",
                "Empty",
                "SnapshotResult",
                "Answers with the LSN it stands for once it is on disk.",
            )
        },
        "/v1/events": {"get": _EVENTS},
        "/metrics": _get("metrics", "Metrics in Prometheus's format.", metrics),
        "/openapi.json": _get("openapi", "This document.", _content({"type": "object"}), **anyone),
    }
    for path in PROBES:
        paths[path] = _probe(path.removeprefix("/"))
    return paths
