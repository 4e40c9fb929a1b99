"""The house's limits as a test: files of 400 lines, functions of 70, a docstring on each module.

Ruff holds the rest of the style; these are what it cannot.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
#: The server's rooms as they are linked under its name, and the client's.
ROOMS = sorted(
    [
        str(path.readlink()).removeprefix("../../")
        for path in (ROOT / "src/tandemq_server").iterdir()
        if path.is_symlink()
    ]
    + ["node/core", "node/cluster", "node/loop", "node/observe"]
    + ["facades/queue15", "facades/xqueue"]
    + [f"client/tandemq/{name}" for name in ("client", "log", "model", "pipeline", "spark")]
)
FOLDERS = (
    "admin",
    "arbiters",
    "benchmarks",
    "cli",
    "client",
    "config",
    "demo",
    "doctor",
    "drivers",
    "engine",
    "facades",
    "node",
    "replication",
    "spaces",
    "statemachine",
    "storage",
    "testing",
    "tests",
    "wire",
    "witness",
)
#: Tests with a longer file or function. None may be added; what is split leaves the list.
LONG = {
    "tests/arbiters/test_witness.py",
    "tests/audit/faults.py",
    "tests/audit/scenes.py",
    "tests/config/test_config_load.py",
    "tests/engine/test_attempts.py",
    "tests/node/test_doors.py",
    "tests/property/naive_model.py",
    "tests/property/test_engine_model.py",
    "tests/replication/replication_twins.py",
    "tests/replication/test_applier.py",
    "tests/simulation/sim_node.py",
    "tests/simulation/test_leading.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_operations.py",
    "tests/statemachine/test_fiber.py",
    "tests/storage/test_storage_log.py",
    "tests/storage/test_storage_recovery.py",
}
SOURCES = sorted(path for room in FOLDERS for path in (ROOT / room).rglob("*.py"))
TEXTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "Makefile", "pyproject.toml", ".ci/run")
    for path in ROOT.glob(pattern)
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from def to the end, decorators and docstring not counted."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        text = function.body[0]
        assert text.end_lineno is not None
        lines -= text.end_lineno - text.lineno + 1
    return lines


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_source(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    lines = source.count("\n")
    assert ast.get_docstring(tree), f"{name(path)}: no docstring"
    long = {one.name: length(one) for one in functions(tree) if length(one) > FUNCTION_LINES_MAX}
    told = f"{name(path)}: {lines} lines, functions of more than {FUNCTION_LINES_MAX}: {long}"
    assert (lines > FILE_LINES_MAX or bool(long)) == (name(path) in LONG), told


def test_no_module_is_called_like_one_of_the_standard_library() -> None:
    """Who reads `import queue` must not have to think which."""
    assert not [name(path) for path in SOURCES if path.stem in sys.stdlib_module_names]


def test_every_room_says_what_it_is_for() -> None:
    for room in ROOMS:
        text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or ""
        assert len(text.splitlines()) >= 3, f"{room}: what lives there, and what must not"


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    for target in targets:
        if "://" not in target:
            assert (path.parent / target).exists(), f"{name(path)}: {target}"


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[0].split())
    explained = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert explained == phony
