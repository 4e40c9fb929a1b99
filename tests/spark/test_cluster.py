"""A real standalone cluster on loopback gives, row for row, what local mode gives.

The jobs are spark-submit's, with our packages as --py-files, then a Spark Connect client's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from benchmarks.logmaker import LogMaker, fill
from tandemq.model.record import DELETE, KIND_ACK
from tandemq.pipeline import audit, compact, follow, history, report
from tandemq.pipeline.events import read_log
from tests.spark.spark_node import free_port

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__path__[0])
MASTER = "spark://127.0.0.1"
#: Start fast and compile less, as TANDEM_SPARK_QUICK does for the session of the tests.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def documented() -> list[list[str]]:
    """Words of the commands docs/spark.md gives: master, worker, zip, submit."""
    text = (ROOT / "docs" / "spark.md").read_text().split("## On a cluster")[1].split("## ")[0]
    lines = [line[2:] for line in text.splitlines() if line.startswith("$ $") or "zipfile" in line]
    assert len(lines) == 4
    return [shlex.split(line.replace("$SPARK_HOME", str(HOME))) for line in lines]


@contextlib.contextmanager
def cluster(folder: Path, port: int, env: dict[str, str]) -> Iterator[None]:
    """A master and a worker, starting. What is done inside needs no cluster yet."""
    master, worker, *_ = documented()
    master = [str(port) if word == "7077" else word for word in master]
    small = ["--cores", "1", "--memory", "1g"]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for number, words in enumerate(
            (
                [*master, "--webui-port", str(free_port())],
                [*worker[:-1], *small, "--webui-port", str(free_port()), f"{MASTER}:{port}"],
            )
        ):
            with (folder / f"daemon{number}.log").open("wb") as out:
                daemons.append(subprocess.Popen(words, stdout=out, stderr=out, env=env))
        yield
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)


def registered(folder: Path) -> None:
    deadline = time.monotonic() + 180
    said = folder / "daemon1.log"
    while "Successfully registered with master" not in said.read_text():
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.1)


def rows_of(folder: Path) -> list[str]:
    """Every row of every file below, with what the folders' names say, in one order."""
    found: list[str] = []
    for path in folder.rglob("*.parquet"):
        place = "/".join(path.relative_to(folder).parts[:-1])
        found += [f"{place} {row}" for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(found)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_jobs_on_a_cluster_and_through_connect_equal_local_mode(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    fill(maker, 400)
    # Something for the audit to find: a task acked again after its end.
    orders = maker.engine.tubes["orders"]
    gone = (DELETE, orders.space.id, 0)
    maker.write([(maker.engine.now, KIND_ACK, b"1" * 16, [gone])] * 2)
    maker.close()
    log = str(maker.directory)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "PYSPARK_PYTHON": sys.executable,
    }
    *_, zipped, submit = documented()
    packed = tmp_path / "tandemq.zip"
    words = [str(packed) if word == packed.name else word for word in zipped[1:]]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True)
    # The documented command, but for the port, and with our commands in the place of one.
    master_port, port = free_port(), free_port()
    submit = submit[: submit.index("client/tandemq/pipeline/__main__.py")]
    submit = [word.replace("127.0.0.1:7077", f"127.0.0.1:{master_port}") for word in submit]
    submit = [str(packed) if word == packed.name else word for word in submit]
    with cluster(tmp_path, master_port, env):
        here = tmp_path / "local"
        verdict = audit.judge(
            read_log(spark, [log], audit.columns(), rescue="true", mode="PERMISSIVE")
        )
        told = [
            history.run(spark, [log], str(here / "history")),
            report.run(spark, [log], str(here / "report"), "body"),
            compact.run(spark, [log], str(here / "archive")),
            follow.run(spark, log, str(here / "changes")),
        ]
        registered(tmp_path)
        done = subprocess.run(
            [
                *submit,
                *("--driver-java-options", QUICK),
                *("--conf", f"spark.executor.extraJavaOptions={QUICK}"),
                *("--conf", "spark.cores.max=1", "--conf", "spark.executor.memory=600m"),
                *("--conf", "spark.sql.shuffle.partitions=2"),
                *("--conf", "spark.plugins=org.apache.spark.sql.connect.SparkConnectPlugin"),
                *("--conf", f"spark.connect.grpc.binding.port={port}"),
                *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
                str(Path(__file__).with_name("cluster_jobs.py")),
                *(log, str(tmp_path / "there"), str(packed), f"sc://127.0.0.1:{port}"),
            ],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=850,
            check=False,
        )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    first, *lines = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
    # The packages came by --py-files, and an executor of the worker did the work.
    assert "tandemq.zip" in first["driver"]
    assert "tandemq.zip" in first["executor"]
    assert list((tmp_path / "work").glob(f"{first['app']}/*/stderr"))
    mine = {"ok": verdict.ok, "counts": verdict.counts, "broken": verdict.broken}
    mine |= {"engine": "spark", "rules": len(verdict.judged)}
    assert verdict.broken.keys() == {"double_ack"}
    for name, answers in (("there", lines[:5]), ("there-connect", lines[5:])):
        there = tmp_path / name
        judged = answers[0].pop("rows")
        assert answers[0].pop("warnings") == {}
        assert answers[0] == mine
        assert sorted(map(str, judged)) == sorted(str(row) for row in verdict.rows)
        paths = {str(there): str(here)}
        assert json.loads(json.dumps(answers[1:]).replace(*paths.popitem())) == told
        parts = ("tasks", "deliveries", "open")
        for table in (*(f"history/{part}" for part in parts), "archive", "report", "changes"):
            rows = rows_of(here / table)
            assert len(rows) > 3, table
            assert rows_of(there / table) == rows, table
        for name in sorted((here / "report").glob("*.csv")):
            assert (there / "report" / name.name).read_text() == name.read_text()
