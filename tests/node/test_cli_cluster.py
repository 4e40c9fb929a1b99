"""`tandemq status` and `tandemq role` against a real node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.node.test_process import TANDEMQ, Process


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    running = Process(tmp_path_factory.mktemp("cli") / "data", "--wal-mode", "write")
    yield running
    assert running.end() == 0


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [TANDEMQ, *words], capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout, done.stderr


def address(node: Process) -> str:
    return node.admin.removeprefix("http://")


def test_role_there_and_back_and_status(node: Process) -> None:
    where = ("--admin", address(node))
    code, out, _ = run("role", "ro", *where)
    assert code == 0
    assert "is now WAITING" in out
    code, out, _ = run("role", "ro", *where)
    assert "was already WAITING" in out
    code, out, _ = run("status", "--json", *where)
    told = json.loads(out)
    assert told["status"]["state"] == "WAITING"
    assert told["cluster"]["writable"] == []
    code, out, _ = run("role", "rw", "--json", *where)
    assert json.loads(out)["state"] == "RUNNING"
    code, out, _ = run("status", *where)
    assert code == 0
    assert "RUNNING, writable" in out


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("role", "rw", "--admin", "127.0.0.1:1"), 3, "is the node up"),
        (("role", "sideways"), 2, "sideways"),
        (("role", "rw", "--force"), 2, "--force needs --at-lsn"),
        (("status", "--admin", "nowhere"), 2, "nowhere"),
    ],
)
def test_mistakes_are_named_in_a_line(words: tuple[str, ...], code: int, text: str) -> None:
    got, _, err = run(*words)
    assert got == code
    assert text in err


def test_a_forced_flip_of_the_wrong_node_changes_nothing(node: Process) -> None:
    where = ("--admin", address(node))
    code, _, err = run("role", "ro", "--force", "--at-lsn", "999999", *where)
    assert code == 1
    assert "nothing was changed" in err
    assert node.ask("/primary")[0] == 200
