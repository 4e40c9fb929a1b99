"""A space whose rows are kept in one shape and shown to readers in another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandemq_server.spaces.space import TRUNCATED, Row, Space


class ViewSpace(Space):
    """`format` and `shapes` describe what `view(row)` gives; the rows themselves have id and
    status first, whatever the format says.
    """

    __slots__ = ("view",)

    def __init__(self, *args: Any, view: Callable[[Row], list[Any]], **named: Any) -> None:
        super().__init__(*args, **named)
        self.view = view

    def restore(self, key: Any, old: Row | None) -> None:
        if key is TRUNCATED:
            super().restore(key, old)
            return
        for index in self.indexes:
            index.undoing(True)
        try:
            super().restore(key, old)
        finally:
            for index in self.indexes:
                index.undoing(False)
