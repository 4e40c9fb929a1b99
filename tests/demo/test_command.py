"""The demonstration's command: what it says to bad input, and a small run against a real node.

Here: exit codes and last lines. Must not be here: the judge's rules (test_verdict.py).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo import main
from demo.node_process import program
from tests.cluster.cluster_nodes import until


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--urls", str(tmp_path / "none")]) == 2
    out = capsys.readouterr().out
    assert out.startswith("error: --urls ")
    assert out.count("\n") == 1


def test_no_apt_and_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 2
    assert "--urls FILE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--workers", "0"], "argument --workers: '0' is not in the range 1 to 1000"),
        (["--workers", "many"], "argument --workers: 'many' is not in the range"),
        (["--fetch-ms", "nan"], "argument --fetch-ms: 'nan' is not in the range 0 to 1000"),
        (["--wal-mode", "some"], "--wal-mode"),
    ],
)
def test_bad_options(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--ports", "1,2,3"], ["--ports", "a,b,c,d"]])
def test_bad_ports(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", *words])
    assert ended.value.code == 2
    assert f"'{words[1]}' are not four ports A,B,C,D" in capsys.readouterr().err


def test_a_small_frontier_ends_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "urls.txt"
    urls = [f"https://host{n % 7}.example/{n}" for n in range(300)]
    path.write_text("\n".join(urls), encoding="utf-8")
    keep = tmp_path / "kept"
    words = ["--single", "--urls", str(path), "--workers", "5", "--connections", "2"]
    code = main([*words, "--keep", str(keep)])
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "verdict: ok", out
    assert code == 0
    puts = [json.loads(line) for line in (keep / "puts.jsonl").read_text().splitlines()]
    holds = [json.loads(line) for line in (keep / "holds.jsonl").read_text().splitlines()]
    assert {put["url"] for put in puts} == {hold["url"] for hold in holds} == set(urls)
    assert {hold["outcome"] for hold in holds} == {"ok"}


def test_two_nodes_flipped_and_killed_end_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANDEM_SPARK_QUICK", "1")
    path = tmp_path / "urls.txt"
    path.write_text("\n".join(f"https://host{n % 23}.example/{n}" for n in range(900)))
    keep = tmp_path / "kept"
    words = ["--urls", str(path), "--workers", "6", "--seconds", "4", "--keep", str(keep)]
    code = main(words)
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "verdict: ok", out
    assert code == 0
    assert "audit of the logs: ok" in out
    taken_over = "takeover without an operator"
    for deed in ("planned switch-over to b", "kill -9 of b", taken_over, "return of b"):
        assert f">> {deed}" in out
    (row,) = [line for line in out.splitlines() if line.lstrip(" │|").startswith(taken_over)]
    assert re.search(r"\d+ ms, first put accepted after \d+ ms", row), row
    puts = [json.loads(line) for line in (keep / "puts.jsonl").read_text().splitlines()]
    accepted = [put["node"] for put in puts if put["outcome"] == "ok"]
    assert {"a", "b"} <= set(accepted)
    log = (keep / "a" / "node.log").read_text()
    assert "WAITING" in log
    assert "term 3" in log


def _output(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, timeout=30).stdout


def test_a_cluster_that_stays_up_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", "cluster", "--any-ports", "--dir", str(tmp_path)]
    # Also where whoever runs the tests has it ignored, as shells do in the background.
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("Ctrl-C"):
                break
        admin = next(word for word in "".join(said).split() if word.startswith("--admin=")) or ""
        switch = [*program(), "switchover", "b", "--admin", admin[len("--admin=") :]]
        assert "b serves" in subprocess.check_output(switch, text=True)
        # The master dies, and nobody says what is to be done.
        pid = next(line for line in said if line.startswith("b: ")).partition("pid ")[2]
        told = [*program(), "failover", "status", "--json", "--admin"]
        until(lambda: '"partner": "a"' in _output([*told, admin[len("--admin=") :]]), 30)
        os.kill(int(pid.partition(",")[0]), signal.SIGKILL)
        until(lambda: '"master": "a"' in _output([*told, admin[len("--admin=") :]]), 30)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
