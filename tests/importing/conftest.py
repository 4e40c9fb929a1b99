"""A real Tarantool with spaces of every layout, and a node to import into."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.compat_server import Server, free_port
from tests.importing.import_bench import TASKS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def program() -> str:
    unpacked = ROOT / ".tools" / "tarantool" / "usr" / "bin" / "tarantool"
    found = shutil.which("tarantool") or (str(unpacked) if unpacked.exists() else None)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no tarantool: make tools")
    assert found is not None
    return found


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("source")
    port = free_port()
    environment = os.environ | {
        "SOURCE_DIR": str(directory),
        "SOURCE_PORT": str(port),
        "SOURCE_TASKS": str(TASKS),
    }
    with (directory / "out").open("wb") as out:
        process = subprocess.Popen(
            [program(), str(HERE / "source.lua")], env=environment, stdout=out, stderr=out
        )
    until = time.monotonic() + 120
    while "ready" not in (directory / "out").read_text():
        assert process.poll() is None, (directory / "out").read_text()
        assert time.monotonic() < until, (directory / "source.log").read_text()
        time.sleep(0.05)
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait(10)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "node").start()
    yield running
    if running.process is not None:
        running.stop()
