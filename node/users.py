"""Who may log in, and what they may call: users and guest as the configuration names them.

Only hashes are kept; a plain password never stays in memory longer than its check.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from wire.auth import check_chap_sha1, check_pap

if TYPE_CHECKING:
    from node.config import Settings, User

#: Everybody may ask who they are and how the node is.
ALWAYS = ("box.session.*", "box.info")


class Users:
    """Accounts of one node. Rights are patterns over call names: `queue.tube.jobs:*`, `*`."""

    def __init__(self, settings: Settings) -> None:
        self._users: dict[str, User] = {user.name: user for user in settings.users}
        self._rights: dict[str, tuple[str, ...]] = {
            user.name: (*ALWAYS, *user.rights(settings.roles)) for user in settings.users
        }
        self._roles: dict[str, tuple[str, ...]] = {
            user.name: tuple(user.roles) for user in settings.users
        }
        self._dialects = {user.name: user.dialect for user in settings.users}
        self._rights["guest"] = (*ALWAYS, *settings.guest_rights())
        self._guest_may = bool(settings.guest_rights())

    def may(self, user: str, call: str) -> bool:
        """Whether the configuration lets a user make a call."""
        return any(_matches(call, pattern) for pattern in self._rights.get(user, ()))

    def guest_may(self) -> bool:
        """Whether the configuration lets who has not logged in do anything but ask who it is."""
        return self._guest_may

    def grantees(self, user: str) -> tuple[str, ...]:
        """Whose grants hold for a user: their own and those of their roles."""
        return (user, *self._roles.get(user, ()))

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
        if method == "chap-sha1":
            return check_chap_sha1(account.chap_sha1, salt, data)
        pap = account.pap_sha256
        return pap is not None and check_pap(pap[1], pap[0], data)


def _matches(call: str, pattern: str) -> bool:
    return pattern == "*" or pattern == call or fnmatchcase(call, pattern)
