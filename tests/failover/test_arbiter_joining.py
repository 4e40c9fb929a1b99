"""A node with an arbiter begins read-only, whatever its configuration says, until it has asked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq_server.node.loop import arbiter_joining


@pytest.mark.parametrize(("seated", "requests"), [(True, [True]), (False, [False])])
def test_what_a_process_is_before_it_has_asked(
    seated: bool, requests: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S7: the seat of a master that restarts may be another's by now."""
    asked: list[bool] = []

    async def request_role(_role: object, read_only: bool, **_how: Any) -> object:
        asked.append(read_only)
        return object()

    monkeypatch.setattr(arbiter_joining, "request_role", request_role)
    keeper = SimpleNamespace(placed=True) if seated else None
    settings = SimpleNamespace(read_only=False)
    peering = SimpleNamespace(role=object(), seat=keeper, settings=settings)
    asyncio.run(arbiter_joining.begin(peering))  # type: ignore[arg-type]
    assert asked == requests
