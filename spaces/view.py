"""A space whose rows are kept in one shape and shown to readers in another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spaces.space import TRUNCATED, Row, Space


class ViewSpace(Space):
    """`format` and `shapes` describe what `view(row)` gives; the rows themselves have id and
    status first, whatever the format says.

    restoring: a failed call is being taken back, so that indexes which count what happened
    count it back.
    """

    __slots__ = ("restoring", "view")

    def __init__(self, *args: Any, view: Callable[[Row], list[Any]], **named: Any) -> None:
        super().__init__(*args, **named)
        self.view = view
        self.restoring = False

    def restore(self, key: Any, old: Row | None) -> None:
        self.restoring = key is not TRUNCATED
        try:
            super().restore(key, old)
        finally:
            self.restoring = False
