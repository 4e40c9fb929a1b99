"""The examples of docs/examples.md give what they are said to give."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tarantool
from tarantool.error import DatabaseError

from tests.queue15.server15 import Dialects

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "examples.md"
HEX = re.compile(r"'([0-9a-f]{32})'")
MOMENT = re.compile(r"\b1[0-9]{15}\b")


def section() -> list[str]:
    text = DOCUMENT.read_text(encoding="utf-8")
    block: str = text.split("## queue15")[1].split("```")[1]
    return block.strip().splitlines()


def answers(connection: tarantool.Connection, calls: list[str]) -> list[str]:
    """What each line gives, ids and moments by their names."""
    ids: dict[str, str] = {}

    def call(name: str, *args: Any) -> Any:
        try:
            return list(connection.call(name, list(args)).data)
        except DatabaseError as error:
            return error

    found = []
    for line in calls:
        names = {name: ident for ident, name in ids.items()}
        # The lines are the project's own documentation.
        outcome = eval(line, {"call": call, **names})
        text = f"error: {outcome.args[1]}" if isinstance(outcome, Exception) else repr(outcome)
        for ident in HEX.findall(text):
            ids.setdefault(ident, f"ID{len(ids) + 1}")
        text = HEX.sub(lambda match: ids[match.group(1)], text)
        found.append(MOMENT.sub("TIME", text))
    return found


@pytest.fixture
def fresh(tmp_path: Path) -> Any:
    server = Dialects(tmp_path / "examples")
    server.start()
    connection = tarantool.Connection("127.0.0.1", server.port15)
    yield connection
    connection.close()
    assert server.stop() == 0


def test_examples(fresh: tarantool.Connection) -> None:
    lines = section()
    calls = [line.removeprefix(">>> ") for line in lines if line.startswith(">>> ")]
    said = [line for line in lines if not line.startswith(">>> ")]
    assert len(calls) > 20
    assert answers(fresh, calls) == said
