"""One Spark session for all tests of this folder, and logs made by the real engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from benchmarks.logmaker import LogMaker


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """local[2] with both formats registered, started once."""
    from pipeline.session import build_session

    home = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("TANDEM_SPARK_QUICK", "1")
    session = build_session("local[2]", "tests", home=home, shuffle_partitions=2)
    yield session
    session.stop()


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[LogMaker]:
    """A running node's log with one term."""
    one = LogMaker(tmp_path / "a", segment_bytes=16_384)
    one.open_term()
    yield one
    one.disk.release()
