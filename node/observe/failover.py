"""The seat in the node's status, and what an operator may do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandemq_server.node.cluster.failover import report
from tandemq_server.node.observe.answers import FailoverStatus, OperationRefused

if TYPE_CHECKING:
    from tandemq_server.node.cluster.peering import Peering


def failover_of(peering: Peering) -> FailoverStatus | None:
    """None without an arbiter."""
    keeper = peering.seat
    return None if keeper is None else FailoverStatus(*report.report(keeper))


def change(peering: Peering, action: str) -> FailoverStatus:
    """pause, resume or seed. Raises `OperationRefused`."""
    keeper = peering.seat
    if keeper is None:
        raise OperationRefused("there is no arbiter", ("failover.arbiter in the configuration",))
    if action == "pause":
        report.pause(keeper, "an operator said so")
    elif action == "resume":
        report.resume(keeper)
    elif refusal := keeper.seed("seeded by an operator"):
        raise OperationRefused(refusal, (refusal,))
    found = failover_of(peering)
    assert found is not None
    return found
