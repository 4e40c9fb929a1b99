"""The reference is fresh, the JSON Schema fits real files, and every setting explains itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from tandemq_server.config.checks import section_of
from tandemq_server.config.document import json_schema, markdown
from tandemq_server.config.schema import Settings

ROOT = Path(__file__).resolve().parents[2]


def sections() -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = [Settings]
    for model in found:
        for field in model.model_fields.values():
            section = section_of(field.annotation)
            if section is not None and section not in found:
                found.append(section)
    return found


def test_reference_is_fresh() -> None:
    kept = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert kept == markdown(), "run make docs"


@pytest.mark.parametrize("section", sections(), ids=lambda model: model.__name__)
def test_every_setting_has_a_meaning_and_a_range(section: type[BaseModel]) -> None:
    for name, field in section.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name
        extra = field.json_schema_extra
        has_range = isinstance(extra, dict) and "accepted" in extra
        assert has_range or section_of(field.annotation) is not None, name


def test_json_schema_takes_human_forms() -> None:
    made = json_schema()
    limits = made["$defs"]["Limits"]["properties"]
    assert limits["frame_bytes_max"]["type"] == ["integer", "string"]
    assert {"type": ["number", "string"], "minimum": 0.05, "maximum": 31536000.0} in limits[
        "idle_seconds"
    ]["anyOf"]
    assert made["properties"]["guest"]["anyOf"][0] == {"enum": ["none", "all"]}
