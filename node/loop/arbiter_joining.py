"""A node and its arbiter: opened with the node's settings, begun and ended with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tandemq_server.node.cluster.peering import Peering
from tandemq_server.node.loop.arbiter_calls import ArbiterCalls
from tandemq_server.node.loop.plugins import PluginError
from tandemq_server.node.loop.role_request import request_role
from tandemq_server.statemachine.effects import Settled

LOOK_SECONDS = 0.02


def join(
    peering: Peering,
    flush: Callable[[], None],
    report: Callable[[str, BaseException | None], None],
) -> ArbiterCalls | None:
    """The calls to this node's arbiter, begun; None without one. Raises `PluginError`."""
    keeper, failover = peering.seat, peering.settings.failover
    if keeper is None:
        return None
    assert failover.cluster is not None, "checked when the configuration was loaded"
    # What arbiters are asked with is imported by those who have one.
    from tandemq_server.arbiters.base import ArbiterError
    from tandemq_server.arbiters.open import open_arbiter

    where = failover.etcd if failover.arbiter == "etcd" else failover.witness
    try:
        arbiter = open_arbiter(where, failover.cluster, failover.liveness_ttl, failover.timeout)
    except ArbiterError as error:
        raise PluginError(f"failover: {error}") from error
    calls = ArbiterCalls(keeper, arbiter, flush, report)
    calls.start()
    return calls


async def begin(peering: Peering) -> Settled:
    """Be what the seat says, else the configuration; over once that is known."""
    role, keeper = peering.role, peering.seat
    if keeper is None:
        return await request_role(role, peering.settings.read_only, command=False)
    settled = await request_role(role, True, command=False, by_seat=True)
    while not keeper.placed:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)
    return settled
