"""Who this node is, who may do what on it, and how much one client may make it hold.

Told by the rim, which has them from the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tandemq.model.units import KIB, MIB


class Accounts(Protocol):
    """Who may log in and call what; the rim builds it from the configuration."""

    def may(self, user: str, call: str) -> bool: ...

    def grantees(self, user: str) -> tuple[str, ...]: ...

    def dialect(self, user: str) -> str | None: ...

    def authenticate(self, user: str, method: str, data: bytes, salt: bytes) -> bool: ...

    def link_secrets(self, user: str) -> tuple[bytes, ...]:
        """What is kept of this user's passwords: a node proves by it that it is of the cluster."""
        ...

    def guest_may(self) -> bool:
        """Whether who has not logged in may do anything of what the configuration grants."""
        ...


@dataclass(frozen=True, slots=True)
class ClientBounds:
    """Bounds on what one client may make the node hold. Bytes, counts, levels."""

    frame_bytes_max: int = 64 * MIB
    payload_bytes_max: int = MIB
    output_bytes_max: int = 64 * MIB
    nesting_max: int = 128
    login_bytes_max: int = 8 * KIB


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this node is. Ids are UUID text; `version` is what connectors parse."""

    name: str
    node_id: str
    cluster_id: str
    version: str = "2.11.0"
    listen: str = ""
    pid: int = 0
