"""The examples of docs/examples.md give what they are said to give.

WRITE_EXAMPLES=1 writes the answers of this run into the page instead of comparing them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tarantool
from tarantool.error import DatabaseError

from tests.queue15.server15 import Dialects

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "examples.md"
HEX = re.compile(r"'([0-9a-f]{32})'")
MOMENT = re.compile(r"\b1[0-9]{15}\b|\b1[0-9]{9}\.[0-9]+\b")
BLOCK = re.compile(r"^## (.+?)$.+?^```$\n(.+?)^```$", re.MULTILINE | re.DOTALL)
#: How each source's calls are all shown.
SHOWN = {
    "The queue module": "create_tube put take ack release peek bury kick delete drop statistics",
    "queue15": "put urgent take ack release requeue bury done dig kick unbury delete meta peek "
    "statistic put_unique touch truncate",
    "xqueue": "upgrade put take ack release bury wait dig kill stats",
}


def steps(block: str) -> list[str]:
    """The calls of a block as they stand, those over several lines as one."""
    found: list[str] = []
    for line in block.splitlines():
        if line.startswith(">>> "):
            found.append(line)
        elif line.startswith("... "):
            found[-1] += "\n" + line
    return found


def transcript(connection: tarantool.Connection, block: str) -> str:
    """Each call and what it gives, ids and moments by their names."""
    ids: dict[str, str] = {}

    def call(name: str, *args: Any) -> Any:
        try:
            return list(connection.call(name, list(args)).data)
        except DatabaseError as error:
            return error

    def select(name: str) -> Any:
        return list(connection.select(name).data)

    lines = []
    for step in steps(block):
        names = {name: ident for ident, name in ids.items()}
        code = "".join(line[4:] for line in step.splitlines())
        # The lines are the project's own documentation.
        outcome = eval(code, {"call": call, "select": select, **names})
        text = f"error: {outcome.args[1]}" if isinstance(outcome, Exception) else repr(outcome)
        for ident in HEX.findall(text):
            ids.setdefault(ident, f"ID{len(ids) + 1}")
        text = HEX.sub(lambda match: ids[match.group(1)], text)
        lines += [step, MOMENT.sub("TIME", text)]
    return "\n".join(lines) + "\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Dialects]:
    running = Dialects(tmp_path / "examples")
    running.start()
    yield running
    assert running.stop() == 0


def test_examples(server: Dialects) -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    blocks = dict(BLOCK.findall(page))
    assert blocks.keys() == SHOWN.keys()
    said = page
    for title, block in blocks.items():
        port = server.port15 if title == "queue15" else server.port
        connection = tarantool.Connection("127.0.0.1", port)
        found = transcript(connection, block)
        connection.close()
        said = said.replace(block, found)
    if os.environ.get("WRITE_EXAMPLES"):
        DOCUMENT.write_text(said, encoding="utf-8")
    else:
        assert said == page


@pytest.mark.parametrize("title", SHOWN)
def test_every_call_of_the_documents_is_shown(title: str) -> None:
    block = dict(BLOCK.findall(DOCUMENT.read_text(encoding="utf-8")))[title]
    made = set(re.findall(r"call\('[\w.]*?[.:](\w+)'", block))
    made |= {name.rpartition(":")[2] for name in re.findall(r"call\('([\w.]+:\w+)'", block)}
    assert set(SHOWN[title].split()) <= made
