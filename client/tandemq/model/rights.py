"""How rights are written down: by a user's name, or by a role's with a word in front."""

from __future__ import annotations

#: In front of a role's name, where a user's would stand; no user is called so.
ROLE = "role:"
