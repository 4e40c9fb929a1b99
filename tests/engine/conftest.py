"""Fixtures of the engine's tests: an engine that serves, and a tube of each driver."""

from collections.abc import Iterator

import pytest

from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import DRIVERS, Bench, assert_replica_agrees


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Whatever a test does, its log applied elsewhere must give an equal state."""
    one = Bench()
    one.start()
    yield one
    assert_replica_agrees(one)


@pytest.fixture(params=DRIVERS)
def tube(bench: Bench, request: pytest.FixtureRequest) -> EngineTube:
    """A tube called t, once for each driver."""
    return bench.create("t", request.param)
