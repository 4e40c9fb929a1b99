"""A real standalone cluster on loopback gives, by spark-submit, what local mode gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
import pytest
from spark_node import free_port

from benchmarks.logmaker import LogMaker, fill
from pipeline import audit
from pipeline.events import read_log

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__path__[0])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_audit_on_a_cluster_equals_local_mode(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    fill(maker, 900)
    maker.close()
    log = read_log(spark, [str(maker.directory)], audit.columns(), rescue="true", mode="PERMISSIVE")
    here = audit.judge(log)
    port = free_port()
    master_url = f"spark://127.0.0.1:{port}"
    env = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    run = str(HOME / "bin" / "spark-class")
    package = "org.apache.spark.deploy"
    master = [f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = [f"{package}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for number, words in enumerate(
            ([*master, "--webui-port", str(free_port())],
             [*worker, "--webui-port", str(free_port()), master_url])
        ):  # fmt: skip
            with (tmp_path / f"daemon{number}.log").open("wb") as out:
                daemons.append(subprocess.Popen([run, *words], stdout=out, stderr=out, env=env))
        deadline = time.monotonic() + 180
        said = tmp_path / "daemon1.log"
        while "Successfully registered with master" not in said.read_text():
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.1)
        done = subprocess.run(
            [
                str(HOME / "bin" / "spark-submit"),
                *("--master", master_url, "--conf", "spark.cores.max=1"),
                *("--conf", "spark.executor.memory=600m"),
                *("--conf", "spark.sql.shuffle.partitions=2"),
                *(str(ROOT / "pipeline" / "__main__.py"), "audit", str(maker.directory), "--json"),
            ],
            env=env,
            capture_output=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        there = json.loads(done.stdout.decode().strip().splitlines()[-1])
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)
    assert there["ok"] is here.ok is True
    assert there["counts"] == here.counts
    assert list((tmp_path / "work").glob("app-*/*/stderr")), "an executor of the worker did it"
