"""The schema spaces as each user may see them, packed once and answered many times.

Connectors fetch them whenever they connect, so that the price of a fetch must not grow with what
others have made. Everything is forgotten when a space comes or goes or rights change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tandemq_server.wire import schema
from tandemq_server.wire.replies import encode

if TYPE_CHECKING:
    from tandemq_server.engine.engine import Engine
    from tandemq_server.spaces.space import Space

#: Answers kept; connectors ask the same two or three questions.
KEPT_MAX = 256
#: Keys longer than this name nothing there is.
_KEY_PARTS_MAX = 2
#: Who may use a tube in one of these ways may know that it is there.
_USES = ("put", "take", "ack", "statistics")


class SchemaView:
    """allowed(user, call): whether the user may make it."""

    def __init__(self, engine: Engine, allowed: Callable[[str, str], bool]) -> None:
        self._engine = engine
        self._allowed = allowed
        self._version = -1
        self._seen: dict[str, list[schema.SpaceDescription]] = {}
        self._answers: dict[tuple[object, ...], tuple[int, bytes]] = {}

    def forget(self) -> None:
        """Rights have changed."""
        self._seen.clear()
        self._answers.clear()

    def rows(self, user: str, wanted: schema.SelectRequest) -> list[Sequence[Any]]:
        """What a SELECT finds. Raises QueueError."""
        self._forget_if_old()
        return schema.select_system(wanted, self._descriptions(user))

    def _forget_if_old(self) -> None:
        if self._version != self._engine.store.catalogue_version:
            self._version = self._engine.store.catalogue_version
            self.forget()

    def select(self, user: str, wanted: schema.SelectRequest) -> tuple[int, bytes]:
        """(rows, their MessagePack one behind the other). Raises QueueError."""
        self._forget_if_old()
        key = tuple(wanted.key)
        plain = len(key) <= _KEY_PARTS_MAX and all(type(part) in (int, str) for part in key)
        asked = (user, wanted.space_id, wanted.index_id, wanted.iterator, wanted.limit)
        question = (*asked, wanted.offset, *key)
        if plain and (known := self._answers.get(question)) is not None:
            return known
        rows = self.rows(user, wanted)
        answer = len(rows), b"".join(map(encode, rows))
        if plain:
            if len(self._answers) >= KEPT_MAX:
                self._answers.clear()
            self._answers[question] = answer
        return answer

    def _descriptions(self, user: str) -> list[schema.SpaceDescription]:
        found = self._seen.get(user)
        if found is None:
            spaces = self._engine.store.spaces.values()
            found = [_describe(space) for space in spaces if self._shown(user, space)]
            self._seen[user] = found
        return found

    def _shown(self, user: str, space: Space) -> bool:
        if self._allowed(user, f"space:{space.name}"):
            return True
        return space.name in self._engine.tubes and any(
            self._allowed(user, f"queue.tube.{space.name}:{use}") for use in _USES
        )


def _describe(space: Space) -> schema.SpaceDescription:
    """A space of ours as the schema spaces show it."""
    return schema.SpaceDescription(
        space.id,
        space.name,
        list(space.format),
        [
            schema.IndexDescription(number, shape.name, shape.type, shape.unique, list(shape.parts))
            for number, shape in enumerate(space.shapes)
        ],
        temporary=space.temporary,
    )
