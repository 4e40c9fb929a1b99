"""The demonstration's command: what it says to bad input, and a small run against a real node.

Here: exit codes and last lines. Must not be here: the judge's rules (test_verdict.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node.demo import main


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


def test_a_small_frontier_ends_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "urls.txt"
    urls = [f"https://host{n % 7}.example/{n}" for n in range(300)]
    path.write_text("\n".join(urls), encoding="utf-8")
    keep = tmp_path / "kept"
    code = main(["--urls", str(path), "--workers", "5", "--connections", "2", "--keep", str(keep)])
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "verdict: ok", out
    assert code == 0
    puts = [json.loads(line) for line in (keep / "puts.jsonl").read_text().splitlines()]
    holds = [json.loads(line) for line in (keep / "holds.jsonl").read_text().splitlines()]
    assert {put["url"] for put in puts} == {hold["url"] for hold in holds} == set(urls)
    assert {hold["outcome"] for hold in holds} == {"ok"}
