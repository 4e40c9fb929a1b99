"""Both wheels beside a project that has a `model.py`, a `node.py` and so on of its own.

Built as they are released, installed into environments of their own. What they depend on is taken
from the environment of the tests: what is looked at is ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.node_process import NodeProcess
from tests.ports import free_ports

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
TAKEN = ("model", "node", "wire", "engine", "pipeline", "storage", "drivers", "spaces", "admin")
KILO = 1024
#: What a wheel brings beside its package: doors that Spark finds by their names, one format each.
DOORS = {"tandemq": {"pyspark_tandemq.py", "pyspark_tandemq_log.py"}, "tandemq_server": set()}
SIZES_MAX = {"tandemq": 330 * KILO, "tandemq_server": 800 * KILO}
WORKER = '''"""A user's own code: it has a model, a node and a pipeline, none of them Tandem's."""

import engine
import model
import node
import pipeline
import wire

assert model.MINE and node.MINE and wire.MINE and engine.MINE and pipeline.MINE


def handle(task):
    print("handled", task.data, flush=True)
'''
DRIVER = '''"""A driver of a user's own, beside modules that are called like Tandem's rooms."""

import drivers
import spaces
from tandemq_server.drivers.fifo import Fifo

assert drivers.MINE and spaces.MINE


class MyFifo(Fifo):
    pass
'''
JOB = """import model
import node
import storage
from pyspark.sql import SparkSession

assert model.MINE and node.MINE and storage.MINE
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
# Nothing is registered: Spark finds the format by itself.
print("rows", spark.read.format("tandemq_log").load("data").where("operation = 'put'").count())
spark.stop()
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("wheels")
    for project in (ROOT, ROOT / "client"):
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(out)]
        done = subprocess.run([*command, str(project)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    check = [sys.executable, "-m", "twine", "check", "--strict", *map(str, out.glob("*.whl"))]
    assert subprocess.run(check, capture_output=True, text=True).returncode == 0
    return {path.name.split("-")[0]: path for path in out.glob("*.whl")}


class Environment:
    """A fresh one, with these wheels, and a project beside them."""

    def __init__(self, home: Path, *files: Path) -> None:
        venv.create(home / "env", symlinks=True, with_pip=False)
        self.bin = home / "env" / "bin"
        self.site = next((home / "env" / "lib").glob("python*/site-packages"))
        # Only what others wrote: Tandem itself is not in it but by name of an editable install,
        # which is not followed from here.
        (self.site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        command = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install"]
        command += ["--quiet", "--no-deps", "--no-index", "--force-reinstall", "--ignore-installed"]
        subprocess.run([*command, *map(str, files)], check=True, capture_output=True, timeout=120)
        #: Spark asks the path for its workers' Python unless it is told.
        self.env = os.environ | {"PYSPARK_PYTHON": str(self.bin / "python")}
        self.project = home / "project"
        self.project.mkdir()
        for name in TAKEN:
            (self.project / f"{name}.py").write_text("MINE = True\n")
        (self.project / "jobs.py").write_text(WORKER)
        (self.project / "mydriver.py").write_text(DRIVER)
        (self.project / "job.py").write_text(JOB)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / words[0]), *words[1:]]
        done = subprocess.run(
            command, cwd=self.project, env=self.env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done


@pytest.fixture(scope="module")
def both(
    wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Environment, int]]:
    """Both wheels, and a node that serves with a user's driver; with its port."""
    there = Environment(tmp_path_factory.mktemp("both"), *wheels.values())
    port, admin = free_ports(2)
    words = ["--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
    words += ["--data-dir", "data", "--guest", "all", "--config", "node.yaml"]
    (there.project / "node.yaml").write_text("drivers: {mine: 'mydriver:MyFifo'}\n")
    command, env = (str(there.bin / "tandemq"),), {"PYTHONPATH": str(there.project)}
    log = there.project.parent / "node.log"
    with NodeProcess(log, *words, command=command, env=env, cwd=there.project):
        yield there, port


def test_each_brings_one_name_and_nothing_that_only_we_need(wheels: dict[str, Path]) -> None:
    for name, path in wheels.items():
        files = zipfile.ZipFile(path).namelist()
        tops = {file.split("/")[0] for file in files if ".dist-info/" not in file}
        assert tops == {name, *DOORS[name]}
        for word in ("test_", "/tests", "conftest", "demo", "benchmarks", ".pyc"):
            assert not [file for file in files if word in file.removeprefix(name)], word
        assert path.stat().st_size <= SIZES_MAX[name], path.stat().st_size


def test_the_client_alone_runs_without_the_server(
    wheels: dict[str, Path], tmp_path: Path, both: tuple[Environment, int]
) -> None:
    alone = Environment(tmp_path, wheels["tandemq"])
    server, port = both
    address = f"127.0.0.1:{port}"
    assert "work" in alone.run("tandemq", "--help").stdout
    missing = "import importlib.util as u; assert u.find_spec('tandemq_server') is None"
    alone.run("python", "-c", missing)
    server.run("tandemq", "create", "own", "fifo", "--server", address)
    server.run("tandemq", "put", "own", "beside", "--server", address)
    command = [str(alone.bin / "tandemq"), "work", "jobs:handle", "--tube", "own"]
    with subprocess.Popen(
        [*command, "--server", address], cwd=alone.project, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
        finally:
            process.terminate()
        assert line == "handled beside\n"
        assert process.wait(30) == 0


def test_a_driver_of_a_users_own_serves(both: tuple[Environment, int]) -> None:
    there, port = both
    server = ("--server", f"127.0.0.1:{port}")
    there.run("tandemq", "create", "mine", "mine", *server)
    there.run("tandemq", "put", "mine", '"one"', *server)
    assert "one" in there.run("tandemq", "take", "mine", *server).stdout


def test_a_spark_job_reads_the_log(both: tuple[Environment, int]) -> None:
    there, port = both
    server = ("--server", f"127.0.0.1:{port}")
    there.run("tandemq", "create", "logged", "fifo", *server)
    for number in range(3):
        there.run("tandemq", "put", "logged", str(number), *server)
    time.sleep(0.2)
    assert "rows " in there.run("python", "job.py").stdout
