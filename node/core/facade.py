"""What a queue of another system plugs into the core: calls of its own, and who answers them.

Must not be here: any of them by name (facades/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandemq_server.engine.tube import EngineTube
    from tandemq_server.node.core.calls import Handler
    from tandemq_server.node.core.core import Core


def _as_they_are(_core: Core, _tube: EngineTube, usual: dict[str, Handler]) -> dict[str, Handler]:
    return usual


def _same_name(_dialect: str, call: str, _known: Mapping[str, Handler]) -> str:
    return call


def _nowhere(_core: Core, _user: str, _call: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Facade:
    """Asked when a table of calls is made or a name is looked up, never for each request.

    handlers: calls that are there always, by their whole names.
    reads: whether a node that does not serve answers a call from its copy; None: no call of mine.
    of_tube: the calls of a tube by their whole names, given the usual ones.
    in_part: whether a user may make a call of mine somewhere; where, the handler itself checks.
    renamed: the whole name of what a connection of a dialect calls so; may raise QueueError 33.
    """

    handlers: Callable[[Core], Mapping[str, Handler]]
    reads: Callable[[str], bool | None]
    of_tube: Callable[[Core, EngineTube, dict[str, Handler]], dict[str, Handler]] = _as_they_are
    renamed: Callable[[str, str, Mapping[str, Handler]], str] = _same_name
    in_part: Callable[[Core, str, str], bool] = _nowhere
