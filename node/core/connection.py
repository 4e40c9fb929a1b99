"""One IPROTO connection without its socket: decoder, user, session, and replies not yet sent.

Bytes go in through `core.receive`; what must go out is collected by `core.flush`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import QueueError
from tandemq_server.engine.clients import EngineClient
from tandemq_server.node.core.calls import Handler, reply
from tandemq_server.wire.frames import RequestDecoder
from tandemq_server.wire.replies import error_reply
from tandemq_server.wire.watch import Watchers

if TYPE_CHECKING:
    from tandemq_server.node.core.core import Core
    from tandemq_server.wire.evaluate import Names


class Ticket(int):
    """A ticket whose encoded answer becomes another one, `then(answer)`, before it leaves."""

    then: Callable[[bytes], bytes]


def finished(ticket: int, reply: bytes) -> bytes:
    """The answer to a ticket as it leaves."""
    return ticket.then(reply) if type(ticket) is Ticket else reply


class Connection(EngineClient):
    """A client with a wire.

    calls: names it may call, see node.core.calls. out: encoded replies waiting for the end of the
    event-loop turn. A ticket is `sync * 2 + (1 if CALL_16)`. closing: say what is in `out`, then
    close; reason: why.
    """

    __slots__ = (
        "calls",
        "closing",
        "core",
        "decoder",
        "dialect",
        "dirty",
        "failed_logins",
        "link",
        "lost",
        "out",
        "peer",
        "reason",
        "salt",
        "secure",
        "socket",
        "stranger",
        "transport",
        "variables",
        "watchers",
    )

    def __init__(self, core: Core, client_id: int, salt: bytes, peer: str, secure: bool) -> None:
        super().__init__(client_id)
        self.core = core
        self.salt = salt
        self.peer = peer
        self.secure = secure
        #: Of the listener it came by, see facades/queue15/calls.py.
        self.dialect = "tube"
        #: Has not logged in, and a guest may do nothing: hardly a byte is read of it.
        self.stranger = True
        self.failed_logins = 0
        self.decoder = RequestDecoder(core.limits.login_bytes_max)
        self.calls: dict[bytes, Handler] = {}
        self.out: list[bytes] = []
        self.dirty = False
        self.closing = False
        self.lost = False
        self.reason = ""
        self.watchers = Watchers()
        #: What EVALs of this connection have set: `t = queue.tube.x:take(15)`.
        self.variables: Names = {}
        #: Whatever the shell needs to find the socket again; the core never looks inside.
        self.transport: Any = None
        self.socket: Any = None
        #: The upstream's end of a replication link, once SUBSCRIBE has switched the connection.
        self.link: Any = None

    @property
    def loopback(self) -> bool:
        """The other end is on this machine."""
        host = self.peer.rpartition(":")[0]
        return host.startswith("127.") or host == "::1"

    def send(self, reply: bytes) -> None:
        """Queue an encoded reply for the end of this turn."""
        if self.lost:
            return
        self.out.append(reply)
        if not self.dirty:
            self.dirty = True
            self.core.dirty.append(self)

    def answer(self, ticket: int, reply: bytes) -> None:
        """Send the late answer to a call."""
        self.send(ticket.then(reply) if type(ticket) is Ticket else reply)

    def deliver(self, ticket: int, outcome: Any) -> None:
        if isinstance(outcome, QueueError):
            self.answer(ticket, error_reply(ticket >> 1, outcome))
        else:
            encoded = reply(ticket, outcome)
            assert encoded is not None
            self.answer(ticket, encoded)
