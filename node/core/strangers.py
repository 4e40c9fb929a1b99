"""Who has not logged in where a guest may do nothing: hardly a byte of theirs is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tandemq.model.errors import QueueError
from tandemq_server.node.core.requests import WATCHES, access_denied
from tandemq_server.wire import constants as c
from tandemq_server.wire.packets import Request

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core

#: What is looked at before a login: what leads to one, and calls, as everybody may ask who they
#: are. MALFORMED is what nobody could look at.
BEFORE_LOGIN = (c.ID, c.AUTH, c.PING, c.CALL, c.CALL_16, c.MALFORMED)


def is_stranger(core: Core, connection: Connection) -> bool:
    """Not logged in, and a guest may do nothing here."""
    if connection.user != "guest" or core.accounts.guest_may():
        return False
    return not any(grantee == "guest" for grantee, _ in core.engine.grants.rows)


def requests_of(connection: Connection, data: bytes) -> Iterator[Request]:
    """The requests of a stranger, one at a time, as one of them may be the login.

    All but the few that lead to a login are refused; their size is bounded by the decoder.
    """
    for request in connection.decoder.one_by_one(data):
        if connection.closing:
            return
        if not connection.stranger or request[1] in BEFORE_LOGIN:
            yield request
        elif request[1] not in WATCHES:
            yield request[0], c.MALFORMED, _login_first(request[1]), None


def _login_first(rtype: int) -> QueueError:
    """In the words a server has for a guest without rights."""
    access = {c.EVAL: "Execute", c.SELECT: "Read"}.get(rtype, "Session")
    return access_denied(access, "universe", "", "guest")
