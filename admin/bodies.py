"""Bodies of requests: read within bounds, parsed strictly, checked field by field.

Nothing is coerced: "true" and 1 are not true, and an unknown field is a mistake worth telling.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from aiohttp import web

from tandemq_server.admin.problems import Problem, invalid
from tandemq_server.node.observe.inventory_answers import (
    CHANGED_MAX,
    IDS_MAX,
    TASK_STATES,
    TaskAction,
    TubeAction,
    TubeSide,
)
from tandemq_server.node.observe.rights import GrantAction

BODY_MAX = 16_384
NAME_MAX = 63


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a body. default: None when it must be given, unless it is `optional`.

    choices: the only values of a string; length: of a string in characters, of a list in items;
    an integer, and those of a list, are `least` to `most`.
    """

    name: str
    type: type
    accepted: Any
    default: Any = None
    optional: bool = False
    choices: tuple[str, ...] = ()
    length: int = NAME_MAX
    least: int = 0
    most: int = 2**63 - 1


READ_ONLY = (
    Field("read_only", bool, [True, False]),
    Field("force", bool, [True, False], False),
)
SWITCHOVER = (
    Field("to", str, f"a node's name, 1 to {NAME_MAX} characters"),
    Field("dry_run", bool, [True, False], False),
)
FAILOVER_ACTIONS = ("pause", "resume", "seed")
FAILOVER = (Field("action", str, FAILOVER_ACTIONS, choices=FAILOVER_ACTIONS),)
_TUBE_CHARS_MAX = 4000
TASKS = (
    Field("tube", str, "a tube's name", length=_TUBE_CHARS_MAX),
    Field("action", str, get_args(TaskAction), choices=get_args(TaskAction)),
    Field("ids", list, f"1 to {IDS_MAX} task ids", optional=True, length=IDS_MAX),
    Field("state", str, TASK_STATES, optional=True, choices=TASK_STATES),
    Field("to", str, "a tube's name", optional=True, length=_TUBE_CHARS_MAX),
    Field("limit", int, f"1 to {CHANGED_MAX}", optional=True, least=1, most=CHANGED_MAX),
    Field("dry_run", bool, [True, False], False),
)
TUBE = (
    Field("tube", str, "a tube's name", length=_TUBE_CHARS_MAX),
    Field("action", str, get_args(TubeAction), choices=get_args(TubeAction)),
    Field("what", str, get_args(TubeSide), optional=True, choices=get_args(TubeSide)),
    Field("options", dict, "options of the tube, null for a default", optional=True, length=100),
    Field("to", str, "a tube's name", optional=True, length=_TUBE_CHARS_MAX),
    Field("limit", int, f"1 to {CHANGED_MAX}", optional=True, least=1, most=CHANGED_MAX),
)
GRANT = (
    Field("tube", str, "a tube's name", length=_TUBE_CHARS_MAX),
    Field("who", str, "a user's or role's name", length=200),
    Field("action", str, get_args(GrantAction), choices=get_args(GrantAction)),
    Field("role", bool, [True, False], False),
    Field("call", bool, [True, False], False),
    Field("truncate", bool, [True, False], False),
    Field("manage", bool, [True, False], False),
)
NOTHING: tuple[Field, ...] = ()


async def read_body(
    request: web.Request, fields: tuple[Field, ...], seconds: float
) -> dict[str, Any]:
    """The body's members by name, defaults filled in. Raises `Problem` 400, 408, 413, 422."""
    try:
        async with asyncio.timeout(seconds):
            raw = await request.read()
    except TimeoutError:
        headers = {"Connection": "close"}
        raise Problem("timeout", f"the body took more than {seconds:g} s", None, headers) from None
    if not raw and not fields:
        return {}
    return check_fields(parse(raw), fields)


def parse(raw: bytes) -> Any:
    """Strict JSON: UTF-8, no duplicate members, no NaN. Raises `Problem` 400."""
    try:
        return json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Problem("malformed-json", reason) from None


def check_fields(value: Any, fields: tuple[Field, ...]) -> dict[str, Any]:
    """422 names every field that is wrong, and what would be accepted."""
    if not isinstance(value, dict):
        raise invalid("body", "is not an object", "an object")
    errors = list(_errors(value, fields))
    if errors:
        detail = "; ".join(f"{error['field']}: {error['detail']}" for error in errors)
        raise Problem("invalid", detail, {"errors": errors})
    return {field.name: value.get(field.name, field.default) for field in fields}


def _errors(value: dict[str, Any], fields: tuple[Field, ...]) -> Iterable[dict[str, Any]]:
    known = {field.name for field in fields}
    for name in value:
        if name not in known:
            yield _error(name[:100], "is not a field of this request", sorted(known))
    for field in fields:
        if field.name not in value:
            if field.default is None and not field.optional:
                yield _error(field.name, "is missing", field.accepted)
            continue
        wrong = _wrong(value[field.name], field)
        if wrong:
            yield _error(field.name, wrong, field.accepted)


def _wrong(given: Any, field: Field) -> str:
    """What is wrong with a value, or nothing."""
    if type(given) is not field.type:
        return f"is not {_NOUNS[field.type]}"
    if field.choices and given not in field.choices:
        return "is not one of these"
    if isinstance(given, str):
        if not 0 < len(given) <= field.length:
            return f"has {len(given)} characters"
        return "" if _encodable(given) else "has half a surrogate pair"
    if isinstance(given, dict):
        return "" if 0 < len(given) <= field.length else f"has {len(given)} members"
    if isinstance(given, list):
        if not 0 < len(given) <= field.length:
            return f"has {len(given)} items"
        wrong = any(type(item) is not int or not 0 <= item <= field.most for item in given)
        return "has an item that is not a task id" if wrong else ""
    if type(given) is int and not field.least <= given <= field.most:
        return "is out of range"
    return ""


_NOUNS: dict[type, str] = {
    bool: "a bool",
    str: "a str",
    int: "an int",
    list: "an array",
    dict: "an object",
}


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _error(name: str, detail: str, accepted: Any) -> dict[str, Any]:
    return {"field": name, "detail": detail, "accepted": accepted}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member of an object is given twice")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
