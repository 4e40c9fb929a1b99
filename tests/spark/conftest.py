"""Logs made by the real engine; the Spark session is that of tests/conftest.py."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.logmaker import LogMaker


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[LogMaker]:
    """A running node's log with one term."""
    one = LogMaker(tmp_path / "a", segment_bytes=16_384)
    one.open_term()
    yield one
    one.disk.release()


@pytest.fixture(autouse=True)
def py4j_leaves_its_sockets_to_the_test_that_made_them(
    request: pytest.FixtureRequest,
) -> Iterator[None]:
    """The garbage collector closes a thread's socket to the JVM: not in somebody else's test."""
    yield
    if any(
        "ResourceWarning" in str(mark.args) for mark in request.node.iter_markers("filterwarnings")
    ):
        gc.collect()
