"""Buried records made ready again: one by its key, or so many in the order of takes."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq.model.record import KIND_KICK
from tandemq_server.engine.clients import EMPTY, EngineClient, Values
from tandemq_server.facades.xqueue.arguments import options
from tandemq_server.facades.xqueue.record import key_text

if TYPE_CHECKING:
    from tandemq_server.facades.xqueue.tube import RecordTube
    from tandemq_server.spaces.space import Row


def dig(tube: RecordTube, client: EngineClient, argument: Any, attr: Any = None) -> Any:
    """Up to N records (None: all), or one named by a map, an array or a text key.

    `attr`: {update, delay, ttl}. Answers how many, or the record.
    """
    attr = options(attr)
    delay, ttl = tube.times(attr)
    if argument is None or type(argument) in (int, float):
        count = inf if argument is None else argument
        rows: list[Row] = []
        while len(rows) < count and (row := tube.records.index.first_buried()) is not None:
            rows.append(_dug(tube, row[0], attr, delay, ttl))
        _commit(tube, client, rows)
        return EMPTY if tube.strict else Values((len(rows),))
    row = tube.found(argument)
    if row[1] != "!":
        raise failure(f"Task {{{key_text(row[0])}}} is not buried")
    row = _dug(tube, row[0], attr, delay, ttl)
    _commit(tube, client, [row])
    return tube.nothing(row)


def _dug(
    tube: RecordTube, key: Any, attr: dict[str, Any], delay: int | None, ttl: int | None
) -> Row:
    return tube.records.ready(key, delay, ttl, 0, tube.engine.now, attr.get("update"))


def _commit(tube: RecordTube, client: EngineClient, rows: list[Row]) -> None:
    if not rows:
        return
    tube.calls["kick"] += len(rows)
    tube.engine.commit(KIND_KICK, client.session)
    for row in rows:
        tube.tell(row, "kick")
