"""examples/pipeline: what cron runs at night, and the models of the dbt project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import jinja2
import pyarrow.parquet as pq
import pytest

from benchmarks.logmaker import LogMaker, fill
from tandemq.pipeline import local

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipeline"
#: A command whose audit finds something.
BROKEN = '#!/bin/sh\necho "$2 of $3"\n[ "$2" != audit ]\n'


def night(data: str, out: Path, commands: Path) -> subprocess.CompletedProcess[str]:
    """What cron would start; the folder of `tandemq` is first on its path."""
    return subprocess.run(
        [EXAMPLES / "nightly.sh", data, out, "36500"],
        env={**os.environ, "PATH": f"{commands}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_night_by_cron(maker: LogMaker, tmp_path: Path) -> None:
    fill(maker, 300)
    maker.close()
    log, out = str(maker.directory), tmp_path / "out"
    done = night(log, out, Path(sys.executable).parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
    assert (out / "report" / "report.html").stat().st_size > 500_000
    assert (out / "verdict").read_text().splitlines()[-1].startswith("ok: 382 records")
    assert "tandem" in (out / "audit.prom").read_text()
    assert len(list((out / "history" / "tasks").rglob("*.parquet"))) > 0


def test_a_bad_verdict_is_mailed_and_is_the_exit_code(tmp_path: Path) -> None:
    stub = tmp_path / "bin" / "tandemq"
    stub.parent.mkdir()
    stub.write_text(BROKEN)
    stub.chmod(0o755)
    done = night("data", tmp_path / "out", stub.parent)
    assert (done.returncode, done.stdout, done.stderr) == (1, "audit of data\n", "")
    # A night that is not over yet keeps the next one out.
    with subprocess.Popen(
        ["flock", tmp_path / "out" / "lock", "sh", "-c", "echo held; read over"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        done = night("data", tmp_path / "out", stub.parent)
        holder.communicate(b"\n")
    assert (done.returncode, done.stdout) == (75, "")
    assert "not over" in done.stderr


def test_the_models_of_the_dbt_project(
    maker: LogMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As dbt makes them, but for dbt: it has a hundred packages."""
    fill(maker, 300)
    maker.close()
    home = tmp_path / "history"
    counts = local.history([str(maker.directory)], str(home))
    monkeypatch.chdir(tmp_path)
    macro = (EXAMPLES / "dbt" / "macros" / "of_history.sql").read_text()
    names = ("tasks", "deliveries", "hours")
    assert {file.stem for file in (EXAMPLES / "dbt" / "models").glob("*.sql")} == {*names}
    with duckdb.connect() as duck:
        for name in names:
            model = (EXAMPLES / "dbt" / "models" / f"{name}.sql").read_text()
            text = jinja2.Template(macro + model).render(var={"history": home}.get, ref=str)
            duck.execute(f"CREATE TABLE {name} AS {text}")
        found = {name: duck.sql(f"FROM {name}").to_arrow_table() for name in names}
    for name in ("tasks", "deliveries"):
        files = [*(home / name).rglob("*.parquet"), *(home / f"open-{name}").rglob("*.parquet")]
        assert found[name].num_rows == sum(pq.read_metadata(file).num_rows for file in files)
        assert {*found[name]["tube"].to_pylist()} == {"orders", "mail", "crawl"}
    assert found["tasks"].num_rows == counts["tasks"] + counts["open"]
    assert sum(found["hours"]["deliveries"].to_pylist()) == found["deliveries"].num_rows
