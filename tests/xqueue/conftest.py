"""Fixtures of the xqueue tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.engine_bench import assert_replica_agrees
from tests.xqueue.xqueue_bench import Calls


@pytest.fixture
def declare() -> Iterator[Callable[..., Calls]]:
    """`declare(features, ...)`: a tube; its log applied elsewhere must give an equal state."""
    made: list[Calls] = []

    def one(features: dict[str, Any] | None = None, **more: Any) -> Calls:
        made.append(Calls(features, **more))
        return made[-1]

    yield one
    for calls in made:
        other = assert_replica_agrees(calls.bench)
        mine, its = calls.tube.records.index, other.engine.tubes["q"].inner
        assert its.index.counts == mine.counts  # type: ignore[attr-defined]
