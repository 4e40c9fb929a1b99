"""A request for a role, for those who can wait for its outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tandemq_server.statemachine import effects as fx

if TYPE_CHECKING:
    from tandemq_server.node.cluster.role import RoleKeeper


async def request_role(
    role: RoleKeeper,
    read_only: bool,
    *,
    force: bool = False,
    command: bool = True,
    by_seat: bool = False,
) -> fx.Settled:
    """`RoleKeeper.request`, for those who can wait. Cancelled when the node ends before."""
    settled: asyncio.Future[fx.Settled] = asyncio.get_running_loop().create_future()

    def done(outcome: fx.Settled | None) -> None:
        if settled.done():
            return
        if outcome is None:
            settled.cancel()
        else:
            settled.set_result(outcome)

    role.request(read_only, force=force, command=command, by_seat=by_seat, done=done)
    return await settled
