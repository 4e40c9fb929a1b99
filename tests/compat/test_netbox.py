"""net.box and the console of a stock Tarantool, as `tarantoolctl connect` uses it.

The programs are tests/compat/netbox.lua and console.lua; here is what each step must say.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.compat.compat_client import EVAL, EXPRESSION, TUPLE, Raw
from tests.compat.compat_programs import HERE, RUN_SECONDS, TOOLS, program, run
from tests.compat.compat_server import Server

EXPECTED: dict[str, Any] = {
    "connected": True,
    "a tube made after connecting": True,
    "seen without being asked": True,
    "dropped": True,
    "select of a tube made late": 0,
    "ownership is logged": True,
    "calls do not move it": True,
    "alter": 70,
    "count": 51,
}
REFUSED = {"write refused": "Write access to space 'late' is denied for user 'guest'"}
TYPED: list[tuple[str, str]] = [
    ("queue.state()", "- RUNNING"),
    ("queue.create_tube('shop', 'fifottl', {if_not_exists = true})", "name: shop"),
    ("queue.tube.shop:put({name = 'tea'})", "- [0, r, {name: tea}]"),
    ("t = queue.tube.shop:take(15)", ""),
    ("t[3].name", "- tea"),
    ("queue.tube.shop:ack(t[1])", "- [0, '-', {name: tea}]"),
    # Nothing is there: the answer comes when the time is over.
    ("t = queue.tube.shop:take(0.05)", ""),
    ("t", "- null"),
    ("box.info.status", "- running"),
    ("box.cfg{read_only = true}", ""),
    ("box.cfg.read_only", "- true"),
    ("queue.tube.shop:put('x')", "read-only instance"),
    ("box.cfg{read_only = false}", ""),
    ("queue.tube.shop:ack(7)", "error: Task was not taken"),
    ("os.time()", "error: arbitrary Lua is not available"),
    ("queue.state()", "- RUNNING"),
]


def tarantool() -> str:
    return program("tarantool", str(TOOLS / "tarantool" / "usr" / "bin" / "tarantool"))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    server = Server(tmp_path_factory.mktemp("netbox")).start()
    try:
        command = [tarantool(), str(HERE / "netbox.lua"), f"127.0.0.1:{server.port}"]
        lines = run(command, RUN_SECONDS).stdout.splitlines()
    finally:
        server.stop()
    return dict(_steps(lines))


def _steps(lines: list[str]) -> list[tuple[str, list[Any]]]:
    found = []
    for line in lines:
        at = line.index(' ["')
        found.append((line[:at], json.loads(line[at + 1 :])))
    return found


@pytest.mark.parametrize("step", EXPECTED)
def test_step(outcome: dict[str, list[Any]], step: str) -> None:
    assert outcome[step] == ["ok", EXPECTED[step]]


@pytest.mark.parametrize("step", REFUSED)
def test_refused_step(outcome: dict[str, list[Any]], step: str) -> None:
    assert outcome[step] == ["error", REFUSED[step]]


def test_no_other_step(outcome: dict[str, list[Any]]) -> None:
    assert set(outcome) == {*EXPECTED, *REFUSED}


def test_console(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What somebody types into `tarantoolctl connect` is answered as a Tarantool would."""
    server = Server(tmp_path_factory.mktemp("console")).start()
    try:
        done = subprocess.run(
            [tarantool(), str(HERE / "console.lua"), f"127.0.0.1:{server.port}"],
            input="".join(f"{line}\n" for line, _ in TYPED),
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    finally:
        server.stop()
    answers = done.stdout.split(f"127.0.0.1:{server.port}> ")[1:]
    assert len(answers) >= len(TYPED), done.stdout + done.stderr
    for (line, expected), answer in zip(TYPED, answers, strict=False):
        assert answer.startswith(line)
        told = answer[len(line) :].strip()
        assert told.startswith("---"), (line, told)
        assert told.endswith("..."), (line, told)
        assert expected in told, (line, told)


def test_programs_that_wrap_the_line(raw: Raw) -> None:
    """`tt connect` sends a program of its own around the line, and asks for a title first."""
    text = (
        "local yaml = require('yaml')\nlocal args = {...}\nlocal cmd = table.remove(args, 1)\n"
        "if cmd:sub(1, 1) == '\\\\' then return require('console').eval(cmd) end\n"
        "return yaml.encode({loadstring(cmd)()})"
    )
    assert raw.eval(text, "queue.state()", False, False) == ["---\n- RUNNING\n...\n"]
    # `tt connect -l lua` wants to hear that it was done; the tab key asks what a word may become.
    for line in (r"\set language lua", r"\set output yaml"):
        assert raw.eval(text, line, False, False) == ["---\n- true\n...\n"]
    assert "not available" in raw.eval(text, r"\set language sql", False, False)[0]
    tab = (
        "local last_word, last_word_len = ...\n"
        "return unpack(require('console').completion_handler(last_word, 0, last_word_len))"
    )
    assert raw.eval(tab, "queue.st", 8) == []
    title = "local ok, api_topology = pcall(require, 'some.topology')\nif not ok then return '' end"
    assert raw.eval(title) == [""]


def test_console_of_a_connection_that_goes(raw: Raw) -> None:
    """A line that waits does not hold up its connection; variables are the connection's own."""
    raw.eval("queue.create_tube('wait', 'fifo', {if_not_exists = true})")
    console = "return require('console').eval(...)"
    waiting = raw.send(EVAL, {EXPRESSION: console, TUPLE: ["v = queue.tube.wait:take(5)"]})
    assert raw.eval(console, "queue.state()") == ["---\n- RUNNING\n...\n"]
    raw.call("queue.tube.wait:put", "x")
    assert raw.answer(waiting) == ["---\n...\n"]
    assert raw.eval(console, "v") == ["---\n- [0, t, x]\n...\n"]
    assert raw.eval("return v[3]") == ["x"]
