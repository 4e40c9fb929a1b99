"""Connections of the admin API: a probe gets in however many sit there and say nothing.

Who has not asked anything for a while is closed; when all places are taken, whoever has waited
longest without asking makes room for the next.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, BaseProtocol, Protocol
from typing import Any


class TurnedAway(Protocol):
    """Takes a connection that is one too many, and closes it."""

    def connection_made(self, transport: Any) -> None:
        transport.abort()


class WaitingRoom:
    """`places` connections at most. ask_s: how long one may take over its first request."""

    def __init__(self, loop: AbstractEventLoop, places: int, ask_s: float) -> None:
        self._loop = loop
        self._places = places
        self._ask_s = ask_s
        #: Connections that have asked nothing yet, then those between two requests; eldest first.
        self._silent: dict[Any, None] = {}
        self._idle: dict[Any, None] = {}
        self._busy: set[Any] = set()

    def enter(self, protocol: BaseProtocol) -> bool:
        """Whether there is a place for one more; somebody may have been sent away for it."""
        self._forget_closed()
        if len(self._silent) + len(self._idle) + len(self._busy) >= self._places:
            for waiting in (self._silent, self._idle):
                if waiting:
                    self._send_away(next(iter(waiting)))
                    break
            else:
                return False
        self._silent[protocol] = None
        self._loop.call_later(self._ask_s, self._overdue, protocol)
        return True

    def asks(self, protocol: Any) -> None:
        """A request of this connection has begun."""
        self._silent.pop(protocol, None)
        self._idle.pop(protocol, None)
        self._busy.add(protocol)

    def answered(self, protocol: Any) -> None:
        self._busy.discard(protocol)
        self._idle[protocol] = None

    def _overdue(self, protocol: Any) -> None:
        if protocol in self._silent:
            self._send_away(protocol)

    def _send_away(self, protocol: Any) -> None:
        self._silent.pop(protocol, None)
        self._idle.pop(protocol, None)
        # None until the connection is made, and again when it is over.
        if protocol.transport is not None:
            protocol.transport.abort()

    def _forget_closed(self) -> None:
        """A connection that is over has no transport; one not made yet neither, but is timed."""
        for protocol in [one for one in self._silent if _is_closing(one)]:
            del self._silent[protocol]
        self._idle = {one: None for one in self._idle if _is_open(one)}
        self._busy = {one for one in self._busy if _is_open(one)}


def _is_closing(protocol: Any) -> bool:
    return protocol.transport is not None and bool(protocol.transport.is_closing())


def _is_open(protocol: Any) -> bool:
    return protocol.transport is not None and not protocol.transport.is_closing()
