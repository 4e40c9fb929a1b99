"""Bodies of requests: read within bounds, each a model that says what is accepted.

Nothing is coerced: "true" and 1 are not true, and an unknown field is a mistake worth telling. The
API's document shows the same models (openapi.py).
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal, get_args

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from tandemq_server.admin.problems import Problem, invalid
from tandemq_server.admin.strict_json import parse
from tandemq_server.node.observe.inventory_answers import (
    CHANGED_MAX,
    IDS_MAX,
    TaskAction,
    TaskState,
    TubeAction,
    TubeSide,
)
from tandemq_server.node.observe.rights import GrantAction

BODY_MAX = 16_384
NAME_MAX = 63
_TUBE_CHARS_MAX, _WHO_CHARS_MAX, _OPTIONS_MAX = 4000, 200, 100
NodeName = Annotated[str, StringConstraints(min_length=1, max_length=NAME_MAX)]
TubeName = Annotated[str, StringConstraints(min_length=1, max_length=_TUBE_CHARS_MAX)]
Who = Annotated[str, StringConstraints(min_length=1, max_length=_WHO_CHARS_MAX)]
TaskId = Annotated[int, Field(ge=0, le=2**63 - 1)]
Limit = Annotated[int, Field(ge=1, le=CHANGED_MAX)]
TUBE_NAME, LIMIT = "a tube's name", f"1 to {CHANGED_MAX}"


def _optional(description: str | None = None, **more: Any) -> Any:
    """A field that may be left out. Null is not leaving it out."""
    return Field(None, description=description, **more)


class Body(BaseModel):
    """What a request may say. A field's description is what its errors name as accepted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EmptyBody(Body):
    """No field at all; an empty body will do."""


class ReadOnlyRequest(Body):
    read_only: bool
    force: bool = False


class SwitchoverRequest(Body):
    to: NodeName = Field(description=f"a node's name, 1 to {NAME_MAX} characters")
    dry_run: bool = False


class FailoverRequest(Body):
    action: Literal["pause", "resume", "seed"]


class TasksRequest(Body):
    """Of `POST /v1/tasks`; what fields mean together is checked by who carries it out."""

    tube: TubeName = Field(description=TUBE_NAME)
    action: TaskAction
    ids: list[TaskId] = _optional(f"1 to {IDS_MAX} task ids", min_length=1, max_length=IDS_MAX)
    state: TaskState = _optional()
    to: TubeName = _optional(TUBE_NAME)
    limit: Limit = _optional(LIMIT, json_schema_extra={"default": 1000})
    dry_run: bool = False


class TubeRequest(Body):
    """Of `POST /v1/tubes`."""

    tube: TubeName = Field(description=TUBE_NAME)
    action: TubeAction
    what: TubeSide = _optional()
    options: dict[Any, Any] = _optional(
        "options of the tube, null for a default", min_length=1, max_length=_OPTIONS_MAX
    )
    to: TubeName = _optional(TUBE_NAME)
    limit: Limit = _optional(LIMIT, json_schema_extra={"default": CHANGED_MAX})


class GrantRequest(Body):
    """Of `POST /v1/grants`."""

    tube: TubeName = Field(description=TUBE_NAME)
    who: Who = Field(description="a user's or role's name")
    action: GrantAction
    role: bool = False
    call: bool = False
    truncate: bool = False
    manage: bool = False


async def read_body(request: web.Request, model: type[Body], seconds: float) -> dict[str, Any]:
    """The body's members by name, defaults filled in. Raises `Problem` 400, 408, 413, 422."""
    try:
        async with asyncio.timeout(seconds):
            raw = await request.read()
    except TimeoutError:
        headers = {"Connection": "close"}
        raise Problem("timeout", f"the body took more than {seconds:g} s", None, headers) from None
    if not raw and model is EmptyBody:
        return {}
    return check_body(parse(raw), model)


def check_body(value: Any, model: type[Body]) -> dict[str, Any]:
    """422 names every field that is wrong, and what would be accepted."""
    if not isinstance(value, dict):
        raise invalid("body", "is not an object", "an object")
    known = sorted(model.model_fields)
    errors = [
        _error(name[:100], "is not a field of this request", known)
        for name in value
        if name not in model.model_fields
    ]
    given = {name: one for name, one in value.items() if name in model.model_fields}
    found = None
    try:
        found = model.model_validate(given)
    except ValidationError as error:
        # A list with several wrong items is one wrong field.
        wrong = {str(one["loc"][0]): one for one in reversed(error.errors(include_url=False))}
        for name in model.model_fields:
            if name in wrong:
                takes = accepted(model, name)
                errors.append(_error(name, _detail(wrong[name], given.get(name), takes), takes))
    if errors or found is None:
        detail = "; ".join(f"{error['field']}: {error['detail']}" for error in errors)
        raise Problem("invalid", detail, {"errors": errors})
    return {name: getattr(found, name) for name in model.model_fields}


def accepted(model: type[Body], name: str) -> Any:
    """What a field takes: its values where they are few, else in words."""
    field = model.model_fields[name]
    if field.annotation is bool:
        return [True, False]
    return get_args(field.annotation) if field.description is None else field.description


#: By what pydantic calls a mistake.
_TEXTS: dict[str, str] = {
    "missing": "is missing",
    "bool_type": "is not a bool",
    "string_type": "is not a str",
    "int_type": "is not an int",
    "list_type": "is not an array",
    "dict_type": "is not an object",
    "string_unicode": "has half a surrogate pair",
}


def _detail(error: ErrorDetails, given: Any, accepted: Any) -> str:
    kind = error["type"]
    if len(error["loc"]) > 1:
        return "has an item that is not a task id"
    if isinstance(accepted, tuple) and kind != "missing":
        return "is not one of these" if isinstance(given, str) else _TEXTS["string_type"]
    if kind in ("string_too_short", "string_too_long"):
        return f"has {len(given)} characters"
    if kind in ("too_short", "too_long"):
        return f"has {len(given)} {'members' if isinstance(given, dict) else 'items'}"
    return _TEXTS.get(kind, "is out of range")


def _error(name: str, detail: str, accepted: Any) -> dict[str, Any]:
    return {"field": name, "detail": detail, "accepted": accepted}
