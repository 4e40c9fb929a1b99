"""Makes the samples of this folder importable, and offers the two disks under one name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tandemq.log.disk import Disk
from tandemq_server.storage.files import FileDisk
from tandemq_server.storage.memory import MemoryDisk


@pytest.fixture(params=["memory", "files"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """The simulated and the real disk: the same contract."""
    if request.param == "memory":
        yield MemoryDisk()
        return
    real = FileDisk(tmp_path / "data")
    yield real
    real.release()
