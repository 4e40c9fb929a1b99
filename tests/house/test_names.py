"""A class name means one thing in all of the product."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests.house.arrows import ROOT, modules

#: Names that stand for two classes, each with its reason.
TWICE = {
    "TandemBroker": "public: the broker of Dramatiq and that of Taskiq, each in its own module",
    "DefaultSource": "Spark's name: it takes one source from each module it finds by itself",
    "TandemNode": "one concept: what a test may do with a node, and the server's class that is it",
}


def doubles(root: Path) -> dict[str, list[str]]:
    """Classes defined in more than one place of the product, by name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules(root).values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(root)}:{node.lineno}")
    return {name: places for name, places in found.items() if len(places) > 1}


def test_a_second_class_of_a_name_is_found(tmp_path: Path) -> None:
    for name in ("client/two.py", "engine/one.py", "tests/three.py"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(f"class Tube:\n    ...\n\n\nclass Of{path.stem.title()}:\n    ...\n")
    assert doubles(tmp_path) == {"Tube": ["client/two.py:1", "engine/one.py:1"]}


def test_a_class_name_means_one_thing() -> None:
    found = doubles(ROOT)
    assert {name: places for name, places in found.items() if name not in TWICE} == {}


@pytest.mark.parametrize("name", TWICE)
def test_what_is_excused_is_still_there(name: str) -> None:
    assert len(doubles(ROOT)[name]) == 2
