"""Makes the samples of this folder importable, and offers the two disks under one name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from storage.disk import Disk
from storage.files import FileDisk
from storage.memory import MemoryDisk


@pytest.fixture(params=["memory", "files"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """The simulated and the real disk: the same contract."""
    if request.param == "memory":
        yield MemoryDisk()
        return
    real = FileDisk(tmp_path / "data")
    yield real
    real.release()
