"""Who may log in, and what they may call: users and guest as the configuration names them.

Only hashes are kept; a plain password never stays in memory longer than its check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tandemq.model.rights import ROLE
from tandemq_server.node.core.patterns import matcher
from tandemq_server.wire.auth import check_chap_sha1, check_pap

if TYPE_CHECKING:
    from tandemq_server.config import Settings, User

#: Everybody may ask who they are and how the node is.
ALWAYS = ("box.session.*", "box.info")


class Users:
    """Accounts of one node. Rights are patterns over call names: `queue.tube.jobs:*`, `*`."""

    def __init__(self, settings: Settings) -> None:
        self._users: dict[str, User] = {user.name: user for user in settings.users}
        self._rights = {
            user.name: _allowing(user.rights(settings.roles)) for user in settings.users
        }
        self._roles: dict[str, tuple[str, ...]] = {
            user.name: tuple(user.roles) for user in settings.users
        }
        self._dialects = {user.name: user.dialect for user in settings.users}
        self._rights["guest"] = _allowing(settings.guest_rights())
        self._guest_may = bool(settings.guest_rights())

    def may(self, user: str, call: str) -> bool:
        """Whether the configuration lets a user make a call."""
        return any(allows(call) for allows in self._rights.get(user, ()))

    def guest_may(self) -> bool:
        """Whether the configuration lets who has not logged in do anything but ask who it is."""
        return self._guest_may

    def grantees(self, user: str) -> tuple[str, ...]:
        """Whose grants hold for a user: their own and those of their roles."""
        return (user, *(ROLE + role for role in self._roles.get(user, ())))

    def link_secrets(self, user: str) -> tuple[bytes, ...]:
        """h2 of the user's passwords."""
        account = self._users.get(user)
        return tuple(one.chap_sha1 for one in account.hashes) if account is not None else ()

    def dialect(self, user: str) -> str | None:
        """What a user means by `queue.NAME`; None: what the listener does."""
        return self._dialects.get(user)

    def authenticate(self, user: str, method: str, data: bytes, salt: bytes) -> bool:
        """Check a scramble (chap-sha1) or a password (pap-sha256, TLS only)."""
        account = self._users.get(user)
        if account is None:
            # The same work as for a known user, so that names cannot be told apart by time.
            check_chap_sha1(bytes(20), salt, data.ljust(20, b"\0")[:20])
            return False
        # Both are looked at, whichever fits: the time taken says nothing.
        if method == "chap-sha1":
            found = [check_chap_sha1(one.chap_sha1, salt, data) for one in account.hashes]
        else:
            kept = [one.pap_sha256 for one in account.hashes if one.pap_sha256 is not None]
            found = [check_pap(one[1], one[0], data) for one in kept]
        return any(found)


def _allowing(patterns: Sequence[str]) -> tuple[Callable[[str], bool], ...]:
    return tuple(map(matcher, (*ALWAYS, *patterns)))
