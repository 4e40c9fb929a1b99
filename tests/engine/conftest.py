"""Fixtures of the engine's tests: an engine that serves, and a tube of each driver.

Helpers beside this file are importable, whatever import mode the runner is set to.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from engine_bench import DRIVERS, Bench, assert_replica_agrees

from engine.tube import Tube


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Whatever a test does, its log applied elsewhere must give an equal state."""
    one = Bench()
    one.start()
    yield one
    assert_replica_agrees(one)


@pytest.fixture(params=DRIVERS)
def tube(bench: Bench, request: pytest.FixtureRequest) -> Tube:
    """A tube called t, once for each driver."""
    return bench.create("t", request.param)
