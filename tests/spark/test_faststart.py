"""What sessions of the jobs start faster with, and where it must not get in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tandemq.pipeline.faststart import DAEMON, own_workers, spark_home
from tandemq.spark import daemon

THREAD = "from threading import *; Thread(target=Event().wait, daemon=True).start(); "
LOAD = "from tandemq.spark.daemon import alone, load; print(load(), alone())"


def test_workers_are_forked_from_our_daemon_and_import_no_zip(spark: Any) -> None:
    def look(_: Any) -> Any:
        import pyspark

        specs = sys.modules["__main__"].__spec__
        return specs.name if specs else "", pyspark.__file__, "tandemq.spark.source" in sys.modules

    before = os.environ.get("SPARK_HOME")
    name, where, loaded = spark.sparkContext.parallelize([0], 1).map(look).first()
    assert (name, loaded) == (DAEMON, True)
    assert ".zip" not in where
    assert os.environ.get("SPARK_HOME") == before


@pytest.mark.parametrize(
    ("before", "told"),
    [("", "True True"), (THREAD, "False")],
)
def test_only_a_process_with_one_thread_forks_workers(before: str, told: str) -> None:
    command = [sys.executable, "-c", before + LOAD]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.stdout.startswith(told), run.stderr


def test_workers_that_may_differ_from_us_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with spark_home("local[2]") as own:
        assert own
        home = Path(os.environ["SPARK_HOME"])
        assert (home / "bin" / "spark-class").exists()
        assert not (home / "python").exists()
    assert "SPARK_HOME" not in os.environ
    for master in ("", "spark://127.0.0.1:7077", "local-cluster[2,1,1024]"):
        assert not own_workers(master)
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/another")
    assert not own_workers("local[2]")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with spark_home("local[2]") as own:
        assert own
        assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_freed_memory_is_kept_where_the_c_library_can(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []

    class Library:
        @staticmethod
        def mallopt(name: int, value: int) -> int:
            told.append((name, value))
            return 1

    monkeypatch.setattr(daemon.ctypes, "CDLL", lambda _: Library)
    daemon.keep_memory()
    assert told == [(daemon.M_TRIM_THRESHOLD, 256 << 20), (daemon.M_MMAP_THRESHOLD, 256 << 20)]
    monkeypatch.setattr(daemon.ctypes, "CDLL", lambda _: object())
    daemon.keep_memory()  # other C libraries have nothing to set
