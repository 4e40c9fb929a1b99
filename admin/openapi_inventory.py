"""The part of the API's document about tubes, tasks, sessions, history and the console's files."""

from __future__ import annotations

from typing import Any

from tandemq_server.admin.openapi_parts import (
    CHANGE,
    JSON,
    Json,
    content,
    get_item,
    problems_of,
    ref,
    schema_of,
)
from tandemq_server.admin.security import TRAIL_PATH
from tandemq_server.node.core import trail_answers
from tandemq_server.node.observe import inventory_answers as inventory
from tandemq_server.node.observe import rights

VALUES: tuple[type, ...] = (
    rights.Grant,
    rights.GrantResult,
    rights.Grants,
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
    inventory.TaskAnswer,
    inventory.TaskFailure,
    inventory.TaskPage,
    inventory.TasksResult,
    inventory.TubePage,
    inventory.TubeRates,
    inventory.TubeResult,
    inventory.TubeStatus,
    trail_answers.TrailEntry,
    trail_answers.TrailPage,
)


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


def _past(tube: Json) -> Json:
    text = {"type": "string", "default": ""}
    return _page(
        "past",
        "What happened to a task, step by step, also to one that is gone; from the log.",
        "Past",
        tube,
        _parameter("task", {"type": "integer", "minimum": 0}, "The task's id; or one of the next."),
        _parameter("find", text, "Tasks with this in their payload."),
        _parameter("field", text, "NAME=VALUE: tasks with this field in their payload."),
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
        _parameter(
            "search",
            {**text, "default": ""},
            "Only tasks with this in a string or number of the payload, in a header or a reason.",
        ),
        _parameter(
            "failed",
            {"type": "string", "enum": ["true", "false"]},
            "Whether only tasks that have failed are wanted.",
        ),
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
        "/v1/grants": {
            **get_item("grants", "Rights given at run time.", content(ref("Grants"))),
            "post": _change_grant(),
        },
        "/v1/tasks": {**tasks, "post": _change_tasks()},
        "/v1/past": _past(tube),
        "/v1/sessions": _page(
            "sessions",
            "Sessions, and what they hold.",
            "SessionPage",
            _parameter("after", number, "How many to pass over."),
            _limit(50),
        ),
        TRAIL_PATH: _trail(number),
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


def _trail(number: Json) -> Json:
    return _page(
        "auditTrail",
        "Who did which administrative thing, newest first; with `audit.token_file` for its "
        "token alone.",
        "TrailPage",
        _limit(100),
        _parameter("before", number, "Only entries with a lower id; 0 for all."),
    )


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
        "summary": "Pause, resume or alter a tube, or send its dead letters back.",
        "description": (
            "`alter` changes the `options` named, null for a default, as queue.alter_tube does. "
            "`pause` and `resume` mean puts, takes, or both without `what`. `redrive` sends up to "
            "`limit` dead letters, the oldest first, to the tubes they came from, or all of them "
            "to the tube `to`, their attempts forgotten."
        ),
        **_change("TubeRequest", "TubeResult"),
    }


def _change_grant() -> Json:
    return {
        "operationId": "changeGrant",
        "summary": "Give a user (or role) rights on a tube, or take them back.",
        "description": (
            "`call` means the calls of producers and workers, `truncate` and `manage` what their "
            "names say; a `revoke` without any of these takes back all rights on the tube."
        ),
        **_change("GrantRequest", "GrantResult"),
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
