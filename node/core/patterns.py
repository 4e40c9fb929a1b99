"""Rights as patterns over call names: `queue.tube.jobs:*`, `queue.*`, `space:jobs`, `*`.

`*` stands for anything, but a name of a tube and a method are matched each by its own half, so
that `jobs:*` says nothing of a tube called `jobs:secret`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

#: Calls that hand on rights: a pattern must name them, or be without any method (`queue.*`, `*`).
HANDING_ON = frozenset({"grant", "grant_role", "revoke", "revoke_role"})
#: Reading a space; the rest is its name, colons and all.
SPACE = "space:"


def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that tells of a call's full name whether the pattern allows it."""
    if pattern == "*":
        return lambda _call: True
    if pattern.startswith(SPACE):
        space = _half(pattern.removeprefix(SPACE))
        return lambda call: call.startswith(SPACE) and space(call.removeprefix(SPACE))
    head, colon, method = pattern.rpartition(":")
    if not colon:
        whole = _half(pattern)
        return lambda call: whole(call) and not (call.startswith(SPACE) and "*" not in pattern)
    of_tube, of_method = _half(head), _half(method)

    def allows(call: str) -> bool:
        tube, colon, called = call.rpartition(":")
        if not colon or call.startswith(SPACE) or (called in HANDING_ON and called != method):
            return False
        return of_method(called) and of_tube(tube)

    return allows


def _half(pattern: str) -> Callable[[str], bool]:
    if "*" not in pattern:
        return pattern.__eq__
    # One star swallows as much as several: nobody can make matching slow.
    parts = re.split(r"\*+", pattern)
    compiled = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    return lambda text: compiled.fullmatch(text) is not None
