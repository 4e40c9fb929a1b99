"""Commands that need no server: help, configuration, hashes, log files, and how errors look."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandemq.model.record import KIND_NOOP
from tandemq_server.cli import main
from tandemq_server.cli.app import app
from tandemq_server.cli.load import summary
from tandemq_server.cli.output import one_line, plain
from tandemq_server.wire.auth import chap_sha1_hash, check_pap

Capture = pytest.CaptureFixture[str]
TASKS = ["put", "take", "ack", "release", "bury", "kick", "delete", "peek"]
TUBES = ["tubes", "stats", "create", "drop"]
NODE = ["serve", "snapshot", "bench", "log", "config", "hash-password"]
COMMANDS = [*TASKS, *TUBES, *NODE]


def test_help_names_every_command() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(command in shown for command in COMMANDS)
    assert "Exit codes" in shown


@pytest.mark.parametrize("command", [*TASKS, *TUBES, *NODE])
def test_each_command_has_help(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tandemq ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["serve", "--foo"], "error: No such option: --foo"),
        (["nonsense"], "error: No such command 'nonsense'."),
        (["ack", "jobs"], "error: Missing argument 'ID...'."),
        (["take", "jobs", "--timeout", "soon"],
         "error: --timeout: soon is not a duration, such as 5, 500ms or 1h30m"),
        (["take", "jobs", "--timeout", "-1"],
         "error: --timeout: -1 is out of range (accepted: 0s or more)"),
        (["tubes", "--server", "x"],
         "error: --server: x is not an address, such as 127.0.0.1:3301 or [::1]:3301"),
        (["tubes", "--user", "a", "--password-env", "TANDEMQ_NOPE"],
         "error: --password-env: variable TANDEMQ_NOPE is not set"),
        (["create", "jobs", "fifo", "--option", "ttl"],
         "error: --option ttl: expected KEY=VALUE"),
        (["serve", "--set", "x"], "error: --set x: expected KEY=VALUE"),
        (["serve", "--wal-mode", "x"],
         "error: --wal-mode: wal.mode: x is not accepted (accepted: none, write, fsync)"),
        (["import", "--from", "a:1,b:2"], "error: --from, --server: one address each"),
        (["hash-password", "--password-env", "TANDEMQ_NOPE"],
         "error: --password-env: variable TANDEMQ_NOPE is not set"),
    ],
)  # fmt: skip
def test_wrong_usage(words: list[str], error: str, capsys: Capture) -> None:
    """Exit code 2 and one line; a second, indented one may say what to do."""
    code = main(words)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == error
    assert code == 2
    assert all(line.startswith("       ") for line in err.splitlines()[1:])


def test_nobody_there(capsys: Capture) -> None:
    assert main(["stats", "--server", "127.0.0.1:1"]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "error: 127.0.0.1:1: Connection refused",
        "       start a node with `tandemq serve`, or name one with --server",
    ]


def test_config_check(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("limits: {idle_seconds: 1m}")
    assert main(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out == "ok\n"
    assert main(["config", "check", str(path), "--show", "--set", "snapshot.keep=5"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["limits"]["idle_seconds"], shown["snapshot"]["keep"]) == (60, 5)
    path.write_text("limits: {idle: 1m}\nname: '-'")
    assert main(["config", "check", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_config_schema(capsys: Capture) -> None:
    assert main(["config", "schema"]) == 0
    assert capsys.readouterr().out.startswith("# Configuration\n")
    assert main(["config", "schema", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["type"] == "object"


def test_hash_password(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
    assert main(["hash-password", "--json"]) == 0
    hashes = json.loads(capsys.readouterr().out)["password_hash"]
    assert hashes["chap_sha1"] == chap_sha1_hash("secret").hex()
    salt, stored = (bytes.fromhex(part) for part in hashes["pap_sha256"].split(":"))
    assert check_pap(stored, salt, b"secret")
    monkeypatch.setenv("TANDEMQ_PASSWORD", "secret")
    assert main(["hash-password", "--password-env", "TANDEMQ_PASSWORD"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f'password_hash:\n  chap_sha1: "{hashes["chap_sha1"]}"\n')
    assert "secret" not in out


@pytest.mark.parametrize("words", [["log", "verify"], ["log", "dump"]])
def test_log_of_nothing(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert main([*words, str(tmp_path / "nope")]) == 1
    assert (
        capsys.readouterr().err
        == f"error: {tmp_path}/nope: byte 0: open: No such file or directory\n"
    )
    assert main([*words, str(tmp_path)]) == 1
    assert "is not a data directory yet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_error_lines_cannot_move_the_cursor() -> None:
    assert one_line("a\x1b[2Jb\nc\u202e") == "a\\x1b[2Jb\\nc\\u202e"


def test_json_of_what_json_has_no_word_for() -> None:
    value = {1: [b"text", b"\xff", (None, 1.5)], "s": "\udcff"}
    assert plain(value) == {
        "1": ["text", {"base64": "/w=="}, [None, 1.5]],
        "s": "\\udcff",
    }
    assert json.dumps(plain({"kind": KIND_NOOP}))


def test_percentiles() -> None:
    result = summary("put", [n / 1000 for n in range(100, 0, -1)], 2.0)
    assert (result.p50_ms, result.p95_ms, result.p99_ms, result.max_ms) == (50, 95, 99, 100)
    assert (result.count, result.rate) == (100, 50)
    assert summary("put", [], 0.0).p99_ms == 0
