"""Routes to tubes, tasks, sessions and history: parameters in, pages out, tasks changed by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, get_args

from aiohttp import web

from tandemq_server.admin.bodies import GrantRequest, TasksRequest, TubeRequest, read_body
from tandemq_server.admin.problems import invalid
from tandemq_server.admin.queries import Query
from tandemq_server.admin.security import TRAIL_PATH, AdminConfig
from tandemq_server.node.observe import inventory_answers as values
from tandemq_server.node.observe.answers import Backend
from tandemq_server.node.observe.past_answers import PastWanted
from tandemq_server.node.observe.rights import GrantOrder

TASK_ACTIONS = get_args(values.TaskAction)
#: How far back history goes at most, in seconds.
HISTORY_MAX = 10_800
ID_MAX = 2**63 - 1


class InventoryHandlers:
    """What is in the node; see node.observe.inventory_answers."""

    def __init__(self, backend: Backend, config: AdminConfig) -> None:
        self.backend = backend
        self.config = config

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/tubes", self.tubes),
            web.post("/v1/tubes", self.change_tube),
            web.get("/v1/grants", self.grants),
            web.post("/v1/grants", self.change_grant),
            web.get("/v1/tasks", self.tasks),
            web.post("/v1/tasks", self.change_tasks),
            web.get("/v1/past", self.past),
            web.get("/v1/sessions", self.sessions),
            web.get("/v1/history", self.history),
            web.get("/v1/switchover", self.outlook),
            web.get(TRAIL_PATH, self.trail),
        ]

    async def tubes(self, request: web.Request) -> web.Response:
        query = Query(request)
        search, after = query.text("search", ""), query.text("after", "")
        limit = query.integer("limit", 100, 1, values.PAGE_MAX)
        query.end()
        return _answer(self.backend.inventory.tubes(search, after, limit))

    async def tasks(self, request: web.Request) -> web.Response:
        query = Query(request)
        wanted = values.TaskQuery(
            query.text("tube"),
            query.choice("state", values.TASK_STATES),
            query.text("subqueue", "") if query.given("subqueue") else None,
            query.integer("after", -1, -1, ID_MAX),
            query.integer("limit", 50, 1, values.PAGE_MAX),
            query.text("search", ""),
            query.choice("failed", ("true", "false")) == "true",
        )
        query.end()
        return _answer(self.backend.inventory.tasks(wanted))

    async def past(self, request: web.Request) -> web.Response:
        query = Query(request)
        tube = query.text("tube")
        task = query.integer("task", 0, 0, ID_MAX) if query.given("task") else None
        wanted = PastWanted(task, query.text("find", ""), query.text("field", ""))
        query.end()
        if (task is not None) + bool(wanted.find) + bool(wanted.field) != 1:
            raise invalid("task", "is missing", "a task's id, or find, or field, one of them")
        name, equals, _ = wanted.field.partition("=")
        if wanted.field and not (name and equals):
            raise invalid("field", "is no field", "NAME=VALUE")
        if "\0" in tube + wanted.find + wanted.field:
            raise invalid("tube", "has a zero byte", "text")
        return _answer(await self.backend.past(tube, wanted))

    async def sessions(self, request: web.Request) -> web.Response:
        query = Query(request)
        after = query.integer("after", 0, 0, ID_MAX)
        limit = query.integer("limit", 50, 1, values.PAGE_MAX)
        query.end()
        return _answer(self.backend.inventory.sessions(after, limit))

    async def history(self, request: web.Request) -> web.Response:
        query = Query(request)
        seconds = query.integer("seconds", 600, 1, HISTORY_MAX)
        query.end()
        return _answer(self.backend.inventory.history(seconds))

    async def outlook(self, request: web.Request) -> web.Response:
        return _answer(await self.backend.inventory.outlook())

    async def trail(self, request: web.Request) -> web.Response:
        query = Query(request)
        limit, before = (
            query.integer("limit", 100, 1, values.PAGE_MAX),
            query.integer("before", 0, 0, ID_MAX),
        )
        query.end()
        return _answer(self.backend.trail.page(limit, before))

    async def change_tasks(self, request: web.Request) -> web.Response:
        order = _order(await read_body(request, TasksRequest, self.config.body_s))
        return _answer(await self.backend.inventory.change_tasks(order))

    async def grants(self, request: web.Request) -> web.Response:
        return _answer(self.backend.inventory.grants())

    async def change_grant(self, request: web.Request) -> web.Response:
        order = GrantOrder(**await read_body(request, GrantRequest, self.config.body_s))
        return _answer(await self.backend.inventory.change_grant(order))

    async def change_tube(self, request: web.Request) -> web.Response:
        order = _tube_order(await read_body(request, TubeRequest, self.config.body_s))
        return _answer(await self.backend.inventory.change_tube(order))


def _answer(value: Any) -> web.Response:
    return web.json_response(asdict(value))


def _order(body: dict[str, Any]) -> values.TasksOrder:
    """What fields mean together; each by itself is checked already."""
    if (body["ids"] is None) == (body["state"] is None):
        raise invalid("ids", "or state is needed, and not both", "ids or state")
    if (body["action"] == "move") != (body["to"] is not None):
        raise invalid("to", "belongs to the action move, and to no other", "a tube for move")
    if body["ids"] is not None and body["limit"] is not None:
        raise invalid("limit", "belongs to state, not to ids", "no limit with ids")
    return values.TasksOrder(
        body["tube"],
        body["action"],
        tuple(body["ids"] or ()),
        body["state"],
        body["to"],
        body["limit"] or 1000,
        body["dry_run"],
    )


def _tube_order(body: dict[str, Any]) -> values.TubeOrder:
    redrives = body["action"] == "redrive"
    if body["action"] in ("redrive", "alter") and body["what"] is not None:
        raise invalid("what", "belongs to pause and resume", f"no what with {body['action']}")
    if (body["action"] == "alter") != (body["options"] is not None):
        raise invalid("options", "belongs to the action alter, and to no other", "an object")
    for name in ("to", "limit"):
        if not redrives and body[name] is not None:
            raise invalid(name, "belongs to the action redrive", f"no {name} with {body['action']}")
    limit = body["limit"] or values.CHANGED_MAX
    return values.TubeOrder(
        body["tube"], body["action"], body["what"], body["to"], limit, body["options"]
    )
