"""What calls are told on a node that does not serve: a changing call is refused, by name or by nil.

Must not be here: which node serves (node/cluster/role.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandemq.model.errors import ER_READONLY, QueueError
from tandemq_server.node.core import calls
from tandemq_server.wire.replies import empty_reply, nil_reply

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core

READ_ONLY_TEXT = "Can't modify data on a read-only instance - box.cfg.read_only is true"
#: The source line one connector's fail-over looks for in the error of a read-only node.
_READ_ONLY_LINE = 3859
#: Calls of the original that answer nothing, rather than nil, where they are not served.
_ANSWER_NOTHING = ("touch", "truncate", "release_all", "grant", "grant_role", "create_tube")


def read_only_error(state: str) -> QueueError:
    """As connectors know it; `state` of the queue is named."""
    return QueueError(
        ER_READONLY, f"{READ_ONLY_TEXT} (queue is in {state} state)", line=_READ_ONLY_LINE
    )


def refusal(core: Core, text: str) -> calls.Handler:
    """Answers the changing call `text` while the node is not RUNNING."""
    method = text.rpartition(":")[2].rpartition(".")[2]

    def refuse(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        if not core.read_only_reply_nil:
            raise read_only_error(core.state)
        if method in _ANSWER_NOTHING:
            return empty_reply(ticket >> 1)
        return nil_reply(ticket >> 1, bool(ticket & 1))

    return refuse
