"""Who may do what on a node: rights of the configuration, and those that calls have given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandemq_server.node.core import requests, trail
from tandemq_server.node.core.quotas import Quotas

if TYPE_CHECKING:
    from tandemq_server.engine.engine import Engine
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.identity import Accounts

#: Answers to "may this user make that call" that are kept.
_KNOWN_MAX = 10_000


class Permits:
    """The part of a core that says yes and no."""

    def __init__(self, engine: Engine, accounts: Accounts) -> None:
        self.engine = engine
        self.accounts = accounts
        self._may: dict[tuple[str, str], bool] = {}
        self.quotas = Quotas(engine.usage)
        #: Told of administrative calls; the rim keeps what is told.
        self.noted: trail.Note = lambda _noted: None

    def forget_permits(self) -> None:
        """Rights have changed."""
        self._may.clear()

    def allowed(self, user: str, call: str) -> bool:
        if self.accounts.may(user, call):
            return True
        rows = self.engine.grants.rows
        return any((grantee, call) in rows for grantee in self.accounts.grantees(user))

    def may(self, user: str, call: str) -> bool:
        """`allowed`, remembered until something changes."""
        known = self._may.get((user, call))
        if known is None:
            if len(self._may) >= _KNOWN_MAX:
                self._may.clear()
            known = self._may[user, call] = self.allowed(user, call)
        return known

    def must(self, connection: Connection, call: str) -> None:
        """Raise unless the user may make a call."""
        if not self.allowed(connection.user, call):
            error = requests.access_denied("Execute", "function", call, connection.user)
            trail.denied(self, connection, call, error)
            raise error

    def may_replicate(self, connection: Connection) -> bool:
        """By right, and logged in: whatever guests may do, they prove nothing."""
        return connection.user != "guest" and self.allowed(connection.user, "replication")
