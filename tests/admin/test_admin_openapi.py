"""The document: valid, complete, and the one that is served."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from tandemq_server.admin.bodies import ReadOnlyRequest, SwitchoverRequest
from tandemq_server.admin.openapi import document
from tandemq_server.admin.problems import KINDS, URN
from tests.admin.harness import api

DOCS = Path(__file__).parents[2] / "docs" / "admin-api.md"


def test_the_document_is_valid_and_plain_json() -> None:
    found = document()
    OpenAPIV31SpecValidator(found).validate()
    assert json.loads(json.dumps(found)) == found


@pytest.mark.asyncio
async def test_every_route_is_documented_and_every_document_routed() -> None:
    async with api() as node:
        routes = {
            (route.method.lower(), route.resource.canonical)
            for route in node.server.app().router.routes()
            if route.resource is not None
        }
        documented = {
            (method, path) for path, item in document()["paths"].items() for method in item
        }
        assert routes == documented
        status, served, _ = await node.ask("GET", "/openapi.json")
        assert (status, served) == (200, document())


def test_request_schemas_are_what_is_checked() -> None:
    schemas = document()["components"]["schemas"]
    for model in (ReadOnlyRequest, SwitchoverRequest):
        schema = schemas[model.__name__]
        assert list(schema["properties"]) == list(model.model_fields)
        required = [name for name, field in model.model_fields.items() if field.is_required()]
        assert schema["required"] == required
        assert not schema["additionalProperties"]


def test_every_kind_of_problem_has_a_response() -> None:
    responses = document()["components"]["responses"]
    for kind, (status, title) in KINDS.items():
        assert URN + kind in responses[f"problem{status}"]["description"]
        assert title in responses[f"problem{status}"]["description"]


def test_the_page_names_every_path_problem_and_no_other() -> None:
    page = DOCS.read_text()
    paths = set(document()["paths"])
    assert set(re.findall(r"^\* `(?:GET|PUT|POST) (/\S*)`", page, re.MULTILINE)) == paths
    kinds = set(re.findall(r"^\| \d{3} \| `([a-z-]+)`", page, re.MULTILINE))
    assert kinds == set(KINDS)
