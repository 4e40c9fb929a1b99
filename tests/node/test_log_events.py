"""Each line the node logs has a name and fields for programs; what needs a person is no info."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest

from tandemq_server.node.loop.log_events import OTHER, SHAPES, event_of
from tandemq_server.node.loop.log_lines import Logger

ROOT = Path(__file__).resolve().parents[2]
SAYING = {"say", "log", "report", "alarm", "info", "warning", "error", "warn"}
ROOMS = ("node", "engine", "admin", "witness")


def lines() -> list[tuple[str, str]]:
    """(where, text) of all lines that are said where they are written; parts of them are X."""
    found = []
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            text = said(node.args[0])
            if called in SAYING and text:
                found.append((f"{path.relative_to(ROOT)}:{node.lineno}", text))
    return found


def said(node: ast.expr) -> str:
    """A text as it may come out; "" for what is put together elsewhere."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.BinOp):
        return said(node.left) + said(node.right)
    if not isinstance(node, ast.JoinedStr):
        return ""
    return "".join(said(part) or "X" for part in node.values)


def test_every_line_has_a_name() -> None:
    found = lines()
    assert len(found) > 50
    nameless = [(where, text) for where, text in found if event_of(text).name == OTHER]
    # Whole or in the middle they are put together of other texts.
    assert {text for _, text in nameless} == {"pair mode: X: X", "X: X"}, nameless


@pytest.mark.parametrize(
    ("text", "name", "level", "fields"),
    [
        ("pair mode: going on alone: b is gone", "pair.alone", "warning", {"reason": "b is gone"}),
        (
            "installed the snapshot of b, up to LSN 17",
            "snapshot.installed",
            "info",
            {"peer": "b", "lsn": "17"},
        ),
        (
            "tube jobs: no workers here: x",
            "tube.problem",
            "warning",
            {"tube": "jobs", "reason": "no workers here: x"},
        ),
        ("who knows", OTHER, "info", {}),
    ],
)
def test_a_line_of_json(text: str, name: str, level: str, fields: dict[str, str]) -> None:
    stream = io.StringIO()
    logger = Logger("info", "json", stream)
    logger.context = lambda: {"node": "a", "state": "RUNNING", "term": 3, "lsn": 5}
    logger.info(text)
    entry = json.loads(stream.getvalue())
    told = {"node": "a", "state": "RUNNING", "term": 3, "lsn": 5} | fields
    assert {key: entry[key] for key in told} == told
    assert (entry["event"], entry["level"], entry["message"]) == (name, level, text)


def test_they_are_documented() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [name for name, _, _ in SHAPES if f"`{name}`" not in page] == []
