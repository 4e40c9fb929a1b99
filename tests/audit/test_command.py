"""`tandemq pipeline audit` on the engine of one machine: output, files, exit codes, state."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from tandemq.pipeline.judge.rules.catalogue import ALL
from tests.audit.faults import FAULTS
from tests.audit.rewrite import Edited

TANDEMQ = str(Path(sys.executable).with_name("tandemq"))


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [TANDEMQ, "pipeline", "audit", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.fixture
def faulty(records: Callable[[str], Edited], tmp_path: Path) -> Path:
    log = records("backlog")
    FAULTS["an_ack_leaves_the_owner"].edit(log)
    return log.write(tmp_path / "a")


def test_a_sound_log(played: Callable[[str], Path], records: Callable[[str], Edited]) -> None:
    done = run(played("backlog"))
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout.splitlines()[-1] == f"ok: {len(records('backlog').entries)} records, 24 tasks"
    )


def test_a_broken_rule_in_every_form(faulty: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("rows", "parquet", "junit", "prometheus")}
    words = [word for name, path in files.items() for word in (f"--{name}", path)]
    done = run(faulty, *words)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "violated: owner_left 1"
    assert "owner_left: tube b_fifo task 0 lsn " in done.stdout
    (row,) = [json.loads(line) for line in files["rows"].read_text().splitlines()]
    assert (row["check"], row["task"], row["severity"]) == ("owner_left", 0, "error")
    assert pq.read_table(files["parquet"]).to_pylist() == [row]
    suite = ElementTree.parse(files["junit"]).getroot()
    assert (suite.get("tests"), suite.get("failures")) == (str(len(ALL)), "1")
    (failure,) = suite.iter("failure")
    assert "no longer taken" in str(failure.get("message"))
    metrics = files["prometheus"].read_text()
    assert "tandemq_audit_ok 0\n" in metrics
    assert 'tandemq_audit_findings{rule="owner_left",severity="error"} 1\n' in metrics
    told = json.loads(run(faulty, "--json").stdout)
    assert (told["ok"], told["broken"], told["rows"]) == (False, {"owner_left": 1}, [row])


def test_rules_are_listed_chosen_and_left_out(faulty: Path, tmp_path: Path) -> None:
    assert len(run("--rules").stdout.splitlines()) == len(ALL)
    files = tmp_path / "junit", tmp_path / "metrics"
    words = ("--without", "owner_left", "--junit", files[0], "--prometheus", files[1])
    done = run(faulty, *words)
    assert done.returncode == 0
    assert done.stdout.endswith(f" tasks (by {len(ALL) - 1} of {len(ALL)} rules)\n")
    # Nothing is said of a rule that nobody asked.
    assert ElementTree.parse(files[0]).getroot().get("tests") == str(len(ALL) - 1)
    assert [name for name in files if "owner_left" in name.read_text()] == []
    assert run(faulty, "--rule", "owner_left").returncode == 1
    wrong = run(faulty, "--rule", "nonsense")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: no rule is called nonsense")


def test_a_path_with_a_scheme_is_judged_here_too(played: Callable[[str], Path]) -> None:
    told = json.loads(run(f"file://{played('backlog')}", "--json").stdout)
    assert (told["ok"], told["engine"], told["rules"]) == (True, "local", len(ALL))


def test_what_cannot_be_judged_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for words in ([], [tmp_path / "empty"], [tmp_path / "none"]):
        done = run(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 1


def test_an_audit_goes_on(records: Callable[[str], Edited], tmp_path: Path) -> None:
    log = records("backlog")
    part = records("backlog")
    del part.entries[30:]
    part.write(tmp_path / "a")
    state = tmp_path / "state"
    assert "ok: 30 records" in run(tmp_path / "a", "--state", state).stdout
    log.write(tmp_path / "b")
    assert (
        f"ok: {len(log.entries) - 30} records, 24 tasks"
        in run(tmp_path / "b", "--state", state).stdout
    )
    state.write_bytes(b"nonsense")
    done = run(tmp_path / "b", "--state", state)
    assert done.returncode == 2
    assert "is no state of an audit" in done.stderr


def test_it_starts_soon_and_without_spark(played: Callable[[str], Path]) -> None:
    """Half a second of work is the goal; CPU time is what a busy machine leaves comparable."""
    code = (
        "import sys, time; from tandemq.pipeline.judge.local import audit; "
        "assert audit([sys.argv[1]]).ok; print(time.process_time()); "
        "assert not {'pyspark', 'numba', 'pandas'} & sys.modules.keys()"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, str(played("nothing"))], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.5, f"{done.stdout} s of CPU, {time.monotonic() - began} s"
