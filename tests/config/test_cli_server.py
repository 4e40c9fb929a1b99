"""Commands against a real node: what a person at a terminal sees, and the exit codes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.node_process import NodeProcess
from tandemq_server.cli import main

pytestmark = pytest.mark.integration
PROGRAM = [
    sys.executable,
    "-c",
    "import sys; from tandemq_server.cli import main; sys.exit(main())",
]
STOP_SECONDS = 10
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and data directory of a node that keeps sessions for a minute."""
    directory = tmp_path_factory.mktemp("cli")
    words = ["--listen", "127.0.0.1:0", "--data-dir", str(directory / "data")]
    words += ["--wal-mode", "write", "--guest", "all", "--ttr", "1m", "--log-format", "json"]
    process = NodeProcess(directory / "node.log", *words, command=PROGRAM).start()
    yield process.address, directory / "data"
    assert process.end() == 0
    for line in (directory / "node.log").read_text().splitlines():
        assert {"time", "level", "message"} <= json.loads(line).keys()


@pytest.fixture
def run(
    node: tuple[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """`run("put", "jobs", "x")`: exit code, standard output, standard error."""
    monkeypatch.setenv("TANDEMQ_SERVER", node[0])

    def call(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def tube(run: Run, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)
    assert run("create", name, "fifottl") == (0, f"{name}: fifottl\n", "")
    return name


def tasks(output: str) -> list[Any]:
    return [json.loads(line) for line in output.splitlines()]


def test_life_of_a_task(run: Run, tube: str) -> None:
    code, out, _ = run("put", tube, "first", "second", "--json", "--ttl", "1h", "--pri", "1")
    assert code == 0
    assert tasks(out) == [
        {"id": 0, "state": "ready", "payload": "first"},
        {"id": 1, "state": "ready", "payload": "second"},
    ]
    assert run("bury", tube, "1", "--json")[0] == 0
    assert run("kick", tube, "--json")[1] == '{"kicked": 1}\n'
    assert run("kick", tube) == (4, "", f"error: no task of {tube} is buried\n")
    assert tasks(run("peek", tube, "1", "--json")[1])[0]["state"] == "ready"
    assert tasks(run("delete", tube, "1", "--json")[1])[0]["state"] == "done"
    code, _, err = run("peek", tube, "1")
    hint = "       it is done or was never there: `tandemq list TUBE` shows what is\n"
    assert (code, err) == (1, "error: Task 1 not found\n" + hint)
    assert tasks(run("take", tube, "--ack", "--json")[1]) == [
        {"id": 0, "state": "done", "payload": "first"}
    ]
    assert run("take", tube) == (4, "", f"error: nothing to take from {tube} within 0 s\n")


def test_take_now_and_ack_later(run: Run, tube: str) -> None:
    run("put", tube, '{"a": [1, null]}', "--as-json")
    code, out, err = run("take", tube, "--json")
    task = tasks(out)[0]
    assert (code, task["payload"], task["state"]) == (0, {"a": [1, None]}, "taken")
    assert err.startswith(f"note: finish it with: tandemq ack {tube} 0 --session {task['session']}")
    code, _, err = run("ack", tube, "0")
    assert (code, err.splitlines()[0]) == (1, "error: Task was not taken")
    assert "--session says which session took it" in err
    assert run("ack", tube, "0", "--session", "zz")[0] == 2
    assert run("release", tube, "0", "--session", task["session"], "--delay", "1h")[0] == 0
    assert tasks(run("peek", tube, "0", "--json")[1])[0]["state"] == "delayed"


def test_tables(run: Run, tube: str) -> None:
    run("put", tube, "a\x1b[2J [red]b")
    rows = run("peek", tube, "0")[1].splitlines()
    assert rows[0].split() == [
        "id",
        "state",
        "attempts",
        "age",
        "due",
        "last",
        "failure",
        "payload",
    ]
    assert re.fullmatch(r"0 +ready +[\d.]+ (ms|s) +a\\x1b\[2J \[red\]b", rows[2].strip())
    assert f"not counted, try: tandemq alter {tube} max_attempts=5" in run("info", tube, "0")[1]
    assert tube in run("tubes")[1]
    header, _, *lines = run("stats", tube)[1].splitlines()
    line = dict(zip(header.split(), lines[0].split(), strict=True))
    assert (line["tube"], line["ready"], line["puts"]) == (tube, "1", "1")
    assert tasks(run("stats", tube, "--json")[1])[0]["calls"]["put"] == 1
    assert {"name": tube, "type": "fifottl", "tasks": 1} in tasks(run("tubes", "--json")[1])


def test_all_that_is_known_of_a_task(run: Run, tube: str) -> None:
    policy = ("max_attempts=3", "retry_delay=60", "retry_jitter=0")
    code, out, _ = run("alter", tube, *policy)
    assert (code, out) == (0, f"{tube}: max_attempts 3, retry_delay 60, retry_jitter 0\n")
    run("put", tube, "a", "--pri", "5", "--ttl", "2h")
    task = tasks(run("take", tube, "--json")[1])[0]
    shown = run("info", tube, "0")[1]
    assert "taken for " in shown
    assert f"by session {task['session'][:8]}, not connected" in shown
    assert "attempts   1 of 3" in re.sub(" +", lambda m: "   " if len(m[0]) > 1 else " ", shown)
    run("release", tube, "0", "--session", task["session"])
    known = tasks(run("info", tube, "0", "--json")[1])[0]
    assert (known["state"], known["payload"], known["attempts"]) == ("delayed", "a", 1)
    assert [one["reason"] for one in known["failures"]] == ["released"]
    assert (known["then"], known["pri"]) == ("ready", 5)
    assert 55 < known["due_in"] <= 60
    shown = run("info", tube, "0")[1]
    assert re.search(r"\d\d:\d\d:\d\d +released", shown)
    # The same fields, whichever command tells them.
    for words in (("peek", tube, "0"), ("list", tube)):
        assert tasks(run(*words, "--json")[1])[0].keys() == known.keys()
        assert "released" in run(*words)[1]
    assert run("info", tube, "9")[::2][0] == 1
    code, _, err = run("alter", tube, "temporary=true")
    assert (code, "cannot be altered" in err) == (1, True)
    assert run("alter", tube, "max_attempts=null", "retry_delay=null", "retry_jitter=null")[1] == (
        f"{tube}: max_attempts default, retry_delay default, retry_jitter default\n"
    )


def test_refusals(run: Run, tube: str) -> None:
    assert run("create", tube, "fifo")[::2] == (1, f"error: Space '{tube}' already exists\n")
    code, _, err = run("take", "no_such_tube")
    assert code == 1
    assert err.splitlines()[0].startswith("error: Procedure 'queue.tube.no_such_tube:take'")
    assert run("drop", tube) == (0, f"dropped {tube}\n", "")


def test_tubes_has_the_words_about_tubes_too(run: Run, request: pytest.FixtureRequest) -> None:
    name = str(request.node.name)
    assert run("tubes", "create", name, "fifo") == (0, f"{name}: fifo\n", "")
    assert name in run("tubes", "stats", name)[1]
    assert run("tubes", "drop", name) == (0, f"dropped {name}\n", "")
    assert name not in run("tubes")[1]


def test_wrong_password(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEMQ_PASSWORD", "x")
    code, _, err = run("tubes", "--user", "nobody")
    assert (code, err.splitlines()) == (
        1,
        [
            "error: User not found or supplied credentials are invalid",
            "       check --user and --password-env",
        ],
    )


def test_snapshot_and_log(run: Run, tube: str, node: tuple[str, Path]) -> None:
    run("put", tube, "x")
    assert run("snapshot") == (0, "ok\n", "")
    code, out, _ = run("log", "verify", str(node[1]), "--json")
    assert code == 0
    assert tasks(out)[-1]["ok"] is True
    code, out, err = run("log", "verify", str(node[1]))
    assert (code, err) == (0, "")
    assert "\nok: LSN 1 to " in out
    records = tasks(run("log", "dump", str(node[1]), "--json")[1])
    assert [record["lsn"] for record in records] == list(range(1, len(records) + 1))
    shown = run("log", "dump", str(node[1]), "--from", "1", "--to", "1")[1].splitlines()
    assert len(shown) == 2
    assert shown[1].split()[:2] == ["1", "1"]


def test_bench(run: Run) -> None:
    words = ["bench", "--count", "300", "--in-flight", "8", "--type", "utube", "--json"]
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert [(one["what"], one["count"]) for one in tasks(out)] == [
        ("put", 300), ("take", 300), ("ack", 300),
    ]  # fmt: skip
    assert "bench_" not in run("tubes")[1]
    assert run("bench", "--tube", "no_such_tube")[0] == 1
    assert run("bench", "--count", "10")[1].split()[:3] == ["what", "count", "seconds"]
