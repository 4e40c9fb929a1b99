"""`tandemq pause resume redrive` against a real node."""

from __future__ import annotations

import json

import pytest

from tests.config.test_cli_server import Run, node, run

pytestmark = pytest.mark.integration
__all__ = ["node", "run"]


def test_pause_and_resume(run: Run) -> None:
    run("create", "held", "fifo")
    assert run("pause", "held", "puts") == (0, "held: puts paused\n", "")
    code, _, err = run("put", "held", "x")
    assert (code, "Puts into tube held are paused" in err) == (1, True)
    assert run("pause", "held")[1] == "held: puts and takes paused\n"
    code, out, _ = run("resume", "held", "--json")
    assert json.loads(out) == {"tube": "held", "paused": {"puts": False, "takes": False}}
    assert run("resume", "held")[1] == "held: not paused\n"
    code, _, err = run("pause", "held", "gets")
    assert (code, "expected 'puts', 'takes'" in err) == (1, True)


def test_redrive(run: Run) -> None:
    run("create", "letters", "fifo")
    option = ["--option", "max_attempts=1", "--option", "dead_letter=letters"]
    assert run("create", "work", "fifo", *option)[0] == 0
    run("put", "work", "poison")
    code, out, _ = run("take", "work", "--json")
    session = json.loads(out)["session"]
    assert run("release", "work", "0", "--session", session)[0] == 0
    assert run("redrive", "letters", "--count", "5") == (0, "letters: 1 sent back\n", "")
    assert json.loads(run("redrive", "letters", "--json")[1]) == {"tube": "letters", "moved": 0}
    assert run("peek", "work", "1")[0] == 0
    code, _, err = run("redrive", "letters", "--to", "nowhere")
    assert (code, err) == (0, "")


def test_list_and_bulk(run: Run) -> None:
    run("create", "many", "utubettl")
    run("put", "many", "a", "b", "c", "--utube", "u")
    run("put", "many", "d")
    run("bury", "many", "1")
    lines = [line.split() for line in run("list", "many", "--state", "buried")[1].splitlines()]
    assert any(line[:2] == ["1", "buried"] and line[-1] == "b" for line in lines)
    code, out, _ = run("list", "many", "--utube", "u", "--limit", "2", "--json")
    assert [json.loads(line)["payload"] for line in out.splitlines()] == ["a", "b"]
    assert run("list", "many", "--older-than", "1h")[0] == 4
    assert run("bulk", "delete", "many", "--dry-run")[1] == "many: 4 to delete\n"
    assert run("bulk", "kick", "many", "--utube", "u")[1] == "many: kick 1\n"
    assert run("bulk", "delete", "many", "--limit", "3", "--json")[0] == 0
    code, _, err = run("bulk", "move", "many", "--to", "nowhere")
    assert (code, "Invalid value of to: nowhere" in err) == (1, True)
    run("create", "elsewhere", "fifo")
    assert run("bulk", "move", "many", "--to", "elsewhere")[1] == "many: move 1\n"
    assert run("peek", "elsewhere", "0")[0] == 0
