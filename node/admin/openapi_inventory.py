"""The part of the API's document about tubes, tasks, sessions, history and the console's files."""

from __future__ import annotations

from typing import Any, get_args

from node.admin import inventory
from node.admin.bodies import TASKS, TUBE
from node.admin.openapi_parts import (
    CHANGE,
    JSON,
    Json,
    closed_object,
    content,
    get_item,
    problems_of,
    ref,
    schema_of,
)

VALUES: tuple[type, ...] = (
    inventory.Candidate,
    inventory.ClientConnection,
    inventory.Failure,
    inventory.HeldTask,
    inventory.History,
    inventory.Holder,
    inventory.Outlook,
    inventory.PeerLag,
    inventory.Sample,
    inventory.Session,
    inventory.SessionPage,
    inventory.Task,
    inventory.TaskFailure,
    inventory.TaskPage,
    inventory.TasksResult,
    inventory.TubePage,
    inventory.TubeRates,
    inventory.TubeResult,
    inventory.TubeStatus,
)
_ID: Json = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}


def tasks_request() -> Json:
    """The body of POST /v1/tasks, as bodies.TASKS checks it."""
    name: Json = {"type": "string", "minLength": 1, "maxLength": TASKS[0].length}
    properties: Json = {
        "tube": name,
        "action": {"type": "string", "enum": list(get_args(inventory.TaskAction))},
        "ids": {"type": "array", "items": _ID, "minItems": 1, "maxItems": inventory.IDS_MAX},
        "state": {"type": "string", "enum": list(inventory.TASK_STATES)},
        "to": name,
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": inventory.CHANGED_MAX,
            "default": 1000,
        },
        "dry_run": {"type": "boolean", "default": False},
    }
    return closed_object(properties, optional=("ids", "state", "to", "limit", "dry_run"))


def tube_request() -> Json:
    """The body of POST /v1/tubes, as bodies.TUBE checks it."""
    name: Json = {"type": "string", "minLength": 1, "maxLength": TUBE[0].length}
    properties: Json = {
        "tube": name,
        "action": {"type": "string", "enum": list(get_args(inventory.TubeAction))},
        "what": {"type": "string", "enum": list(get_args(inventory.TubeSide))},
        "to": name,
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": inventory.CHANGED_MAX,
            "default": inventory.CHANGED_MAX,
        },
    }
    return closed_object(properties, optional=("what", "to", "limit"))


def _parameter(name: str, schema: Json, text: str, required: bool = False) -> Json:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": text,
        "schema": schema,
    }


def _limit(default: int) -> Json:
    schema = {
        "type": "integer",
        "minimum": 1,
        "maximum": inventory.PAGE_MAX,
        "default": default,
    }
    return _parameter("limit", schema, "Items on a page.")


def _page(name: str, summary: str, answer: str, *parameters: Json, **more: Any) -> Json:
    """GET (and HEAD) with parameters, any of which may be refused with 422."""
    item = get_item(name, summary, content(ref(answer)), parameters=list(parameters), **more)
    refused = problems_of((422,))
    item["get"]["responses"].update(refused)
    item["head"]["responses"]["422"] = {"description": "As for GET, without a body."}
    return item


def outlook() -> Json:
    """GET beside the POST of /v1/switchover."""
    return get_item(
        "outlook",
        "What each switch-over would do, and a forced promotion would lose, right now.",
        content(ref("Outlook")),
    )


def paths() -> Json:
    text: Json = {"type": "string"}
    number: Json = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1, "default": 0}
    tube = _parameter("tube", {**text, "minLength": 1}, "The tube's name.", required=True)
    tasks = _page(
        "tasks",
        "Tasks of a tube, with their payloads as JSON.",
        "TaskPage",
        tube,
        _parameter("state", schema_of(inventory.TaskState), "Only tasks in this state."),
        _parameter("subqueue", text, "Only tasks of this sub-queue."),
        _parameter(
            "after",
            {"type": "integer", "minimum": -1, "maximum": 2**63 - 1, "default": -1},
            "Only tasks with a higher id.",
        ),
        _limit(50),
    )
    tubes = _page(
        "tubes",
        "Tubes by name: counts, rates, ages.",
        "TubePage",
        _parameter("search", {**text, "default": ""}, "Only tubes with this in their name."),
        _parameter("after", {**text, "default": ""}, "Only tubes with a higher name."),
        _limit(100),
    )
    return {
        **_console(),
        "/v1/tubes": {**tubes, "post": _change_tube()},
        "/v1/tasks": {**tasks, "post": _change_tasks()},
        "/v1/sessions": _page(
            "sessions",
            "Sessions, and what they hold.",
            "SessionPage",
            _parameter("after", number, "How many to pass over."),
            _limit(50),
        ),
        "/v1/history": _page(
            "history",
            "Samples of this node, a second apart for ten minutes, then 15 seconds.",
            "History",
            _parameter(
                "seconds",
                {"type": "integer", "minimum": 1, "maximum": 10_800, "default": 600},
                "How far back.",
            ),
        ),
    }


def _change_tasks() -> Json:
    return {
        "operationId": "changeTasks",
        "summary": "Kick, bury, release, delete or move tasks.",
        "description": (
            "Names tasks by `ids`, or takes up to `limit` of one `state`. Each task is changed by "
            "itself; `failed` names those that were not, and why. `to` is the tube that `move` "
            "moves to. A dry run counts and changes nothing."
        ),
        **_change("TasksRequest", "TasksResult"),
    }


def _change_tube() -> Json:
    return {
        "operationId": "changeTube",
        "summary": "Pause or resume a tube, or send its dead letters back.",
        "description": (
            "`pause` and `resume` mean puts, takes, or both without `what`. `redrive` sends up to "
            "`limit` dead letters, the oldest first, to the tubes they came from, or all of them "
            "to the tube `to`, their attempts forgotten."
        ),
        **_change("TubeRequest", "TubeResult"),
    }


def _change(request: str, result: str) -> Json:
    return {
        "requestBody": {"required": True, "content": content(ref(request))},
        "responses": {
            "200": {
                "description": "Done, as durable as the node promises.",
                "content": {JSON: {"schema": ref(result)}},
            },
            **problems_of(CHANGE),
        },
    }


def _console() -> Json:
    anyone: Json = {"security": [{}]}
    page = get_item(
        "console", "The web console.", {"text/html": {"schema": {"type": "string"}}}, **anyone
    )
    media = ("text/html", "text/javascript", "text/css", "image/svg+xml")
    name = {"name": "file", "in": "path", "required": True, "schema": {"type": "string"}}
    file = get_item(
        "consoleFile",
        "What the web console loads.",
        {one: {"schema": {"type": "string"}} for one in media},
        parameters=[name],
        **anyone,
    )
    file["get"]["responses"].update(problems_of((404,)))
    file["head"]["responses"]["404"] = {"description": "As for GET, without a body."}
    return {"/": page, "/console/{file}": file}
