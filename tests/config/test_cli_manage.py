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
