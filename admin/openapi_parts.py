"""Pieces of the API's document: schemas of annotations, and the shapes requests have in common."""

from __future__ import annotations

import dataclasses
import inspect
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

Json = dict[str, Any]
JSON = "application/json"
_PLAIN: dict[type, Json] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
}


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def schema_name(value: type) -> str:
    """What the document calls a value: `TermAnswer` of the code is `Term` there."""
    return value.__name__.removesuffix("Answer")


def nullable(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def closed_object(properties: Json, optional: tuple[str, ...] = (), closed: bool = True) -> Json:
    required = [name for name in properties if name not in optional]
    found: Json = {"type": "object", "properties": properties, "additionalProperties": not closed}
    if required:
        found["required"] = required
    return found


def schema_of(hint: Any) -> Json:
    """The schema of one annotation of the API's values."""
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return ref(schema_name(hint))
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"type": "string", "enum": list(args)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(args[1])}
    if origin is tuple:
        return {"type": "array", "items": schema_of(args[0])}
    assert origin in (Union, types.UnionType), hint
    assert args[1] is type(None), hint
    return nullable(schema_of(args[0]))


def of_dataclass(value: type) -> Json:
    hints = get_type_hints(value)
    names = [field.name for field in dataclasses.fields(value)]
    schema = closed_object({name: schema_of(hints[name]) for name in names})
    schema["description"] = inspect.cleandoc(value.__doc__ or "")
    return schema


def of_model(model: type[BaseModel]) -> Json:
    """The schema of a body: as it is checked, without what only pydantic has a use for."""
    found = model.model_json_schema()
    for value in (found, *found["properties"].values()):
        value.pop("title", None)
        if value.get("default", 0) is None:
            del value["default"]
    return found


READ = (401, 403, 500, 503)
CHANGE = (400, 401, 403, 408, 409, 413, 415, 422, 500, 503)


def problems_of(statuses: tuple[int, ...]) -> Json:
    return {str(status): {"$ref": f"#/components/responses/problem{status}"} for status in statuses}


def content(schema: Json, media: str = JSON) -> Json:
    return {media: {"schema": schema}}


def get_item(name: str, summary: str, content: Json, **more: Any) -> Json:
    """GET and, with the same answers but no body, HEAD."""
    ok = {"200": {"description": summary, "content": content}}
    get = {
        "operationId": name,
        "summary": summary,
        "responses": {**ok, **problems_of(READ)},
        **more,
    }
    return {"get": get, "head": head_of(get)}


def head_of(get: Json) -> Json:
    responses = {
        status: {"description": response.get("description", "As for GET, without a body.")}
        for status, response in get["responses"].items()
    }
    return {**get, "operationId": get["operationId"] + "Head", "responses": responses}


def change_item(name: str, summary: str, body: str, answer: str, details: str) -> Json:
    return {
        "operationId": name,
        "summary": summary,
        "description": details,
        "requestBody": {"required": body != "Empty", "content": content(ref(body))},
        "responses": {
            "200": {"description": "It is done.", "content": content(ref(answer))},
            "202": {
                "description": "It is under way; /v1/status says what becomes of it.",
                "headers": {
                    "Location": {"schema": {"type": "string"}, "required": True},
                    "Retry-After": {"schema": {"type": "integer"}},
                },
                "content": content(ref("Operation")),
            },
            **problems_of(CHANGE),
        },
    }
