"""Tuples of a space of xqueue as records here: keys, states and deadlines are kept."""

from __future__ import annotations

from math import isfinite
from typing import Any

from tandemq.model.errors import failure
from tandemq.model.task import NEVER_US
from tandemq.model.units import SECOND_US
from tandemq_server.facades.xqueue.records import Records
from tandemq_server.spaces.space import Row

#: A runat below ten years in seconds is of a clock that began at the machine's start.
MONOTONIC_BELOW_S = 10 * 365 * 86_400


class RecordLayout:
    """Every field is the user's own, and decoded."""

    fixed = None

    def __init__(self, records: Records) -> None:
        self.records = records
        self.text_keys = records.layout.text_keys

    def row(self, fields: list[Any], _payload: bytes, now: int) -> tuple[Row, Any]:
        """A record of xqueue. Its one timer field means what its status and the features say.

        Taken records are ready, as the original makes them at its start; a timer that was left
        behind by another status (on R without ttl, on T and B) means nothing and is dropped.
        """
        layout, features = self.records.layout, self.records.features
        if len(fields) > layout.width:
            raise failure(f"Record {fields[:1]} has more fields than the format of the tube")
        fields = fields + [None] * (layout.width - len(fields))
        key = layout.check_key(fields[layout.pk])
        letter = fields[layout.status]
        if type(letter) is not str or letter not in "RTWBZD" or len(letter) != 1:
            raise failure(f"Record {key}: unknown status {letter} (expected one of R T W B Z D)")
        runat = 0 if layout.runat is None else _moment(key, fields[layout.runat])
        life = 0 if self.records.ttl is None else self.records.ttl
        if letter == "T" or (letter == "R" and not (runat and "ttl" in features)):
            runat = now + life if letter == "T" and life else 0
        if letter == "R" or letter == "T":
            state = ("r", runat, "x" if runat else "", runat)
        elif letter == "W":
            state = ("~", runat, "w" if runat else "", runat + life if runat and life else 0)
        elif letter == "Z":
            state = ("z", runat, "z" if runat else "", 0)
        else:
            state = ("!" if letter == "B" else "d", 0, "", 0)
        return (key, *state, *layout.rest(fields)), key


def _moment(key: Any, value: Any) -> int:
    """A runat in seconds since the epoch as µs, 0 for none."""
    if value is None:
        return 0
    if type(value) not in (int, float) or not isfinite(value):
        raise failure(f"Record {key}: runat is not a number of seconds")
    if value <= 0:
        return 0
    if value < MONOTONIC_BELOW_S:
        raise failure(
            f"Record {key}: !!! Queue contains monotonic runat. Consider updating tasks "
            "(https://github.com/moonlibs/xqueue/issues/2)"
        )
    return min(round(float(value) * SECOND_US), NEVER_US)
