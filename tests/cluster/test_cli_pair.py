"""Commands over two real nodes: `tandemq top` through a switch-over and a loss; who serves."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tandemq_server.cli import main
from tandemq_server.cli.top import duration
from tests.cluster.cluster_nodes import TANDEMQ, Pair, pair, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("top")) as running:
        client = running.a.connect()
        client.call("queue.create_tube", "jobs", "fifottl")
        client.call("queue.create_tube", "idle", "fifo")
        for number in range(20):
            client.call("queue.tube.jobs:put", number)
        client.call("queue.tube.jobs:bury", client.call("queue.tube.jobs:take", 0).data[0][0])
        running.in_step()
        yield running


def both(nodes: Pair) -> tuple[str, str]:
    return "--admin", f"127.0.0.1:{nodes.a.admin_port},127.0.0.1:{nodes.b.admin_port}"


def look(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["top", "--once", "--json", *words]) == 0
    view: dict[str, Any] = json.loads(capsys.readouterr().out)
    return view


def test_once_for_programs_and_for_people(nodes: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    client = nodes.a.connect()

    def busy() -> dict[str, Any] | None:
        """Calls are counted in marks two seconds apart: go on until two of them differ."""
        client.call("queue.tube.jobs:ack", client.call("queue.tube.jobs:take", 0).data[0][0])
        client.call("queue.tube.jobs:put", "more")
        nodes.in_step()
        view = look(capsys, *both(nodes))
        rates = view["tubes"][0]["rates"]
        return view if rates and rates["put"] and rates["take"] and rates["ack"] else None

    view = until(busy)
    a, b = view["nodes"]
    assert (a["name"], a["state"], a["writable"]) == ("a", "RUNNING", True)
    assert (b["name"], b["writable"], b["lsn"]) == ("b", False, a["lsn"])
    assert b["lag"]["records"] == 0
    assert (view["writable"], view["conflict"], view["tubes_from"]) == (["a"], False, "a")
    jobs, idle = view["tubes"]
    assert (jobs["name"], jobs["ready"], jobs["buried"]) == ("jobs", 19, 1)
    assert jobs["oldest_ready_seconds"] > 0
    assert idle["ready"] == 0
    by_name = look(capsys, *both(nodes), "--sort", "name")["tubes"]
    assert [tube["name"] for tube in by_name] == ["idle", "jobs"]
    # One of the two knows of the other.
    alone = look(capsys, "--admin", f"127.0.0.1:{nodes.b.admin_port}")
    assert [node["name"] for node in alone["nodes"]] == ["a", "b"]
    assert alone["writable"] == ["a"]
    assert main(["top", "--once", *both(nodes)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("tandemq   serving: a")
    assert any(re.match(r"a +127\.0\.0\.1:\d+ +RUNNING \* +1 +\d+", line) for line in lines)
    assert any(re.match(r"jobs +fifottl .* 19 +0 +0 +1 ", line) for line in lines)


def test_commands_find_the_node_that_serves(
    nodes: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = f"127.0.0.1:{nodes.a.port}", f"127.0.0.1:{nodes.b.port}"
    assert main(["put", "jobs", "x", "--server", b, "--json"]) == 0
    put = capsys.readouterr()
    assert put.err == f"note: b does not serve: went on at {a}\n"
    task = json.loads(put.out)
    assert main(["info", "jobs", str(task["id"]), "--server", a]) == 0
    assert "ready" in capsys.readouterr().out
    # A session goes along to the node that serves.
    assert main(["take", "idle", "--server", b]) == 4
    assert main(["put", "idle", "mine", "--server", b]) == 0
    capsys.readouterr()
    assert main(["take", "idle", "--server", b, "--json"]) == 0
    mine = json.loads(capsys.readouterr().out)
    nodes.in_step()
    assert main(["ack", "idle", str(mine["id"]), "--session", mine["session"], "--server", b]) == 0
    nodes.in_step()
    capsys.readouterr()
    assert main(["stats", "jobs", "--server", b]) == 0
    note = capsys.readouterr().err
    assert note.startswith("note: of b, which does not serve: tasks as its copy has them")
    assert f"a serves: --server {a}" in note
    assert main(["stats", "jobs", "--server", a]) == 0
    assert capsys.readouterr().err == ""
    for servers in (f"{b},{a}", f"127.0.0.1:1,{b},{a}"):
        assert main(["put", "idle", "x", "--server", servers, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["state"] == "ready"
    assert main(["put", "idle", "x", "--server", "127.0.0.1:1,127.0.0.1:2"]) == 3
    assert "127.0.0.1:1,127.0.0.1:2: " in capsys.readouterr().err
    monkeypatch.setenv("TANDEMQ_SERVER", f"{b},{a}")
    once = ["put", "idle", "y", "--key", "k-1", "--window", "1m"]
    assert main([*once, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main([*once, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {**first, "repeated": True}
    assert main(once) == 0
    assert f"the key is that of task {first['id']}" in capsys.readouterr().err
    for words in (["x", "y", "--key", "k"], ["-", "--key", "k"], ["x", "--window", "1m"]):
        assert main(["put", "idle", *words]) == 2
    told = nodes.b.connect(encoding="utf-8").call("box.info").data[0]["queue"]
    assert told["master"] == {"name": "a", "address": a}


def test_names_of_tubes_complete(nodes: Pair) -> None:
    env = {
        **os.environ,
        "TANDEMQ_SERVER": f"127.0.0.1:{nodes.b.port}",
        "_TANDEMQ_COMPLETE": "complete_bash",
        "COMP_WORDS": "tandemq take jo",
        "COMP_CWORD": "2",
    }
    done = subprocess.run([TANDEMQ], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["jobs"]


@contextmanager
def screen(*words: str) -> Iterator[list[str]]:
    """What the command draws on a terminal, read by a thread; ended by Ctrl-C, with code 130."""
    leader, follower = pty.openpty()
    drawn: list[str] = []
    env = {**os.environ, "COLUMNS": "160", "LINES": "40", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [TANDEMQ, "top", *words], stdin=follower, stdout=follower, stderr=follower, env=env,
        start_new_session=True,
    )  # fmt: skip
    os.close(follower)

    def read() -> None:
        while True:
            try:
                raw = os.read(leader, 65536)
            except OSError:
                return
            if not raw:
                return
            drawn.append(raw.decode(errors="replace"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield drawn
        process.send_signal(2)
        assert process.wait(15) == 130
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        reader.join(15)
        os.close(leader)


def shown(drawn: list[str], pattern: str) -> bool:
    """Whether the newest of it has the pattern, colours left out."""
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", "".join(drawn[-4:]))
    return re.search(pattern, text) is not None


def test_the_screen_follows_a_switch_over_and_outlives_a_node(nodes: Pair) -> None:
    with screen(*both(nodes), "--every", "0.2") as drawn:
        until(lambda: shown(drawn, r"serving: a "))
        until(lambda: shown(drawn, r"tubes of a"))
        nodes.a.switch_to(nodes.b)
        until(lambda: shown(drawn, r"serving: b "))
        until(lambda: shown(drawn, r"tubes of b"))
        nodes.a.end()
        until(lambda: shown(drawn, r"a +127[^\n]*Connection refused"))
        assert shown(drawn, r"serving: b ")
        nodes.a.start("--read-only")
        until(lambda: shown(drawn, r"a +127[^\n]*WAITING") or shown(drawn, r"a +127[^\n]*INIT"))


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--admin", "127.0.0.1:1"]) == 3
    assert "no node answers: 127.0.0.1:1: " in capsys.readouterr().err
    assert main(["top", "--every", "0"]) == 2
    assert main(["top", "--once", "--admin", "x"]) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 ms"), (0.85, "850 ms"), (12.34, "12.3 s"), (245, "4m05s"), (11_520, "3h12m"),
     (439_200, "5d02h")],
)  # fmt: skip
def test_durations(value: float, text: str) -> None:
    assert duration(value) == text


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("stats", "nosuch"), 1, "`tandemq tubes` lists the tubes"),
        (("put", "nosuch", "x"), 1, "`tandemq tubes` lists the tubes"),
        (("create", "new", "nosuch"), 1, "`tandemq create --help`"),
        (("peek", "idle", "99999"), 1, "`tandemq list TUBE`"),
        (("ack", "jobs", "2"), 1, "--session"),
        (("tubes", "--user", "guest", "--password-env", "WRONG"), 1, "check --user"),
        (("status", "--admin", "{server}"), 3, "port for clients"),
        (("status", "--admin", "127.0.0.1:1"), 3, "is the node up"),
    ],
)
def test_errors_are_a_line_and_what_to_do(
    nodes: Pair,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    hint: str,
) -> None:
    server = f"127.0.0.1:{nodes.a.port},127.0.0.1:{nodes.b.port}"
    monkeypatch.setenv("TANDEMQ_SERVER", server)
    monkeypatch.setenv("WRONG", "wrong")
    one = f"127.0.0.1:{nodes.b.port}"
    assert main([word.format(server=one) for word in words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("       ")
    assert hint in second
