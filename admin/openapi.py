"""The API's document, OpenAPI 3.1, as data. Schemas of answers come from backend.py's dataclasses.

A test holds it against the routes, and every answer of the other tests against its schemas.
"""

from __future__ import annotations

from tandemq_server.admin import bodies, openapi_inventory
from tandemq_server.admin.openapi_parts import (
    READ,
    Json,
    change_item,
    closed_object,
    content,
    get_item,
    head_of,
    nullable,
    of_dataclass,
    of_model,
    problems_of,
    ref,
    schema_name,
    schema_of,
)
from tandemq_server.admin.problems import KINDS, PROBLEM_JSON, URN
from tandemq_server.admin.security import PROBES
from tandemq_server.node.observe import answers as backend
from tandemq_server.node.observe import overview, past_answers

VERSION = "1"
BODIES = (
    bodies.ReadOnlyRequest,
    bodies.SwitchoverRequest,
    bodies.FailoverRequest,
    bodies.TasksRequest,
    bodies.GrantRequest,
    bodies.TubeRequest,
)
_VALUES = (
    backend.ClusterNode,
    backend.ClusterStatus,
    backend.FailoverStatus,
    backend.FlipResult,
    backend.Lag,
    backend.LossBoundAnswer,
    backend.NodeStatus,
    past_answers.PastAnswer,
    past_answers.PastStep,
    backend.Peer,
    backend.Reloaded,
    backend.SoloResult,
    backend.StepAnswer,
    backend.SwitchReport,
    backend.TermAnswer,
    backend.TransitionAnswer,
    overview.Concern,
    overview.MemoryAnswer,
    overview.Overview,
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


def _schemas() -> Json:
    values = (*_VALUES, *openapi_inventory.VALUES)
    schemas = {schema_name(value): of_dataclass(value) for value in values}
    status = schemas["NodeStatus"]
    status["properties"]["operation"] = nullable(ref("Operation"))
    status["required"].append("operation")
    anything = {"type": "object"}
    schemas["Operation"] = closed_object(
        {
            "id": {"type": "integer"},
            "kind": {"type": "string"},
            "target": anything,
            "outcome": {"type": "string", "enum": ["under_way", "done", "failed"]},
            "seconds": {"type": "number"},
            "result": nullable(anything),
            "problem": nullable(ref("Problem")),
        }
    )
    schemas["SnapshotResult"] = closed_object({"lsn": {"type": "integer"}})
    schemas["Probe"] = closed_object(
        {
            "ok": {"type": "boolean"},
            "state": nullable(schema_of(backend.State)),
            "reason": nullable({"type": "string"}),
        }
    )
    schemas |= {model.__name__: of_model(model) for model in BODIES}
    schemas["Empty"] = of_model(bodies.EmptyBody)
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
    error = closed_object(
        {"field": {"type": "string"}, "detail": {"type": "string"}, "accepted": {}}
    )
    more: Json = {
        "missing": missing,
        "loss_bound": ref("LossBound"),
        "report": ref("SwitchReport"),
        "errors": {"type": "array", "items": error},
    }
    return {"Problem": closed_object({**standard, **more}, optional=("instance", *more))}


def _problem_responses() -> Json:
    """One response a status, telling all the kinds it has."""
    by_status: dict[int, list[str]] = {}
    for kind, (status, title) in KINDS.items():
        by_status.setdefault(status, []).append(f"{title} (`{URN}{kind}`).")
    responses: Json = {}
    for status, texts in by_status.items():
        responses[f"problem{status}"] = {
            "description": " ".join(texts),
            "content": {PROBLEM_JSON: {"schema": ref("Problem")}},
        }
    text = {"schema": {"type": "string"}}
    responses["problem401"]["headers"] = {"WWW-Authenticate": {**text, "required": True}}
    responses["problem405"]["headers"] = {"Allow": {**text, "required": True}}
    responses["problem415"]["headers"] = {"Accept": {**text, "required": True}}
    responses["problem503"]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return responses


# -- paths ---------------------------------------------------------------------------------------

_EVENTS: Json = {
    "operationId": "events",
    "summary": "Changes as they happen, as server-sent events.",
    "description": (
        "Events `state`, `term`, `lag` and `peers`, each with the present value as JSON; `sample` "
        "about once a second (see /v1/history), without an id. First the "
        "present state, or what came after Last-Event-ID where that is still known. "
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
            "content": content({"type": "string"}, "text/event-stream"),
        },
        **problems_of(READ),
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
    body = content(ref("Probe"))
    get = {
        "operationId": name,
        "summary": text,
        "security": [{}],
        "responses": {
            "200": {"description": "Yes.", "content": body},
            "503": {"description": "No, and why.", "content": body},
            **problems_of((403,)),
        },
    }
    return {"get": get, "head": head_of(get)}


def _changes() -> Json:
    """What changes the node's role, seat, settings or files."""
    return {
        "/v1/read_only": {
            "put": change_item(
                "readOnly",
                "Make this node a replica, or the master.",
                "ReadOnlyRequest",
                "FlipResult",
                "Answers when the new state is reached. A promotion that may give up acknowledged "
                "records is refused with 409 and `loss_bound` unless `force` is true.",
            )
        },
        "/v1/switchover": {
            "post": change_item(
                "switchover",
                "Flip both nodes in one planned step.",
                "SwitchoverRequest",
                "SwitchReport",
                "A dry run changes nothing and says what is missing. A switch-over that fails "
                "half-way is rolled back and answered with 409 and its report.",
            )
        },
        "/v1/solo": {
            "post": change_item(
                "solo",
                "In pair mode, go on without the replica.",
                "Empty",
                "SoloResult",
                "Opens a new term with the solo flag. The node returns to pair by itself.",
            )
        },
        "/v1/reload": {
            "post": change_item(
                "reload",
                "Take users, rights, tokens, certificates and the links' password anew.",
                "Empty",
                "Reloaded",
                "What else has changed in the configuration, or is wrong with it, refuses all of "
                "it with 409; `missing` has a line for each.",
            )
        },
        "/v1/snapshot": {
            "post": change_item(
                "snapshot",
                "Write a snapshot now.",
                "Empty",
                "SnapshotResult",
                "Answers with the LSN it stands for once it is on disk.",
            )
        },
        "/v1/failover": {
            "post": change_item(
                "failover",
                "Pause or resume automatic takeovers, or write the seat anew.",
                "FailoverRequest",
                "FailoverStatus",
                "Pausing holds until it is resumed or the process ends. Seeding is for an arbiter "
                "that was restored from an older state, and asked of the node that serves.",
            )
        },
    }


def _paths() -> Json:
    metrics = {
        "text/plain": {"schema": {"type": "string"}},
        "application/openmetrics-text": {"schema": {"type": "string"}},
    }
    anyone: Json = {"security": [{}]}
    paths: Json = {
        "/v1/status": get_item("status", "This node.", content(ref("NodeStatus"))),
        "/v1/overview": get_item(
            "overview",
            "What is worth a person's attention, worst first, and what to do about it.",
            content(ref("Overview")),
        ),
        "/v1/cluster": get_item(
            "cluster", "All nodes as this one sees them.", content(ref("ClusterStatus"))
        ),
        "/v1/events": {"get": _EVENTS},
        "/metrics": get_item("metrics", "Metrics in Prometheus's format.", metrics),
        "/openapi.json": get_item(
            "openapi", "This document.", content({"type": "object"}), **anyone
        ),
    }
    paths.update(_changes())
    paths["/v1/switchover"].update(openapi_inventory.outlook())
    paths.update(openapi_inventory.paths())
    for path in PROBES:
        paths[path] = _probe(path.removeprefix("/"))
    return paths
