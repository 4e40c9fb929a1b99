"""`box.cfg` and `box.snapshot`: an operator's calls over IPROTO that the rim answers, later.

Must not be here: what a change of roles or a snapshot means.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tandemq_server.node.loop import plugins

if TYPE_CHECKING:
    from tandemq_server.node.core.core import Core
    from tandemq_server.node.main import Node
    from tandemq_server.statemachine.effects import Settled


def add_to(core: Core, node: Node) -> None:
    """Into the table of `core`; the node's role and snapshots are there when they are called."""

    def cfg(connection: Any, ticket: int, args: bytes) -> bytes | None:
        """`box.cfg{read_only = ...}`: the operator's switch over IPROTO."""
        read_only = plugins.read_only_argument(args)
        if read_only is None or read_only == node.core.read_only:
            return plugins.empty(ticket)

        def done(settled: Settled | None) -> None:
            if settled is None or not settled.ok:
                reason = "the node ends" if settled is None else settled.reason
                connection.deliver(ticket, plugins.failure(f"read_only: {reason}"))
            else:
                connection.answer(ticket, plugins.empty(ticket))
            node.shell.ask_flush()

        node.role.request(read_only, done=done)
        return None

    def snapshot(connection: Any, ticket: int, args: bytes) -> bytes | None:
        """`box.snapshot()`: answers "ok" once the snapshot is on disk."""
        task = node.snapshots.start()

        def done(task: asyncio.Task[int]) -> None:
            error = None if task.cancelled() else task.exception()
            if task.cancelled() or error is not None:
                text = f"snapshot failed: {error or 'the node ends'}"
                node.report(text)
                connection.deliver(ticket, plugins.failure(text))
            else:
                connection.answer(ticket, plugins.value(ticket, "ok"))
            node.shell.ask_flush()

        task.add_done_callback(done)
        return None

    core.handlers["box.snapshot"] = snapshot
    core.handlers["box.cfg"] = cfg
