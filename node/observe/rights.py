"""Grants made at run time, as the API shows and changes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GrantAction = Literal["grant", "revoke"]


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """Who may make a call (by its full name), or read a space (`space:NAME`)."""

    who: str
    role: bool
    call: str


@dataclass(frozen=True, slots=True)
class Grants:
    """All of them, by name."""

    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class GrantOrder:
    """What `queue.tube.TUBE:grant` and `:revoke` take; a revoke without options takes all."""

    tube: str
    who: str
    action: GrantAction
    role: bool = False
    call: bool = False
    truncate: bool = False
    manage: bool = False


@dataclass(frozen=True, slots=True)
class GrantResult:
    """changed: how many rights were added or taken away."""

    tube: str
    who: str
    role: bool
    action: GrantAction
    changed: int
