"""What goes into xqueue's calls and what their statistics look like."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq.model.task import NEVER_US
from tandemq.model.units import SECOND_US

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort
    from tandemq_server.facades.xqueue.records import Records
    from tandemq_server.spaces.record_index import RecordIndex

PRETTY = {"R": "Ready", "T": "Taken", "W": "Waiting", "B": "Buried", "Z": "Zombie", "D": "Done"}


def us(name: str, value: Any) -> int | None:
    """Seconds as µs, None where there are none."""
    if value is None:
        return None
    if type(value) is int and -1e10 <= value <= 1e10:
        return value * SECOND_US
    # Nothing that is not finite lies between the two.
    if type(value) is not float or not -1e10 <= value <= 1e10:
        raise failure(f"{name} must be a number of seconds")
    return round(value * SECOND_US)


def options(value: Any) -> dict[str, Any]:
    if value is None or value == []:
        return {}
    if type(value) is not dict:
        raise failure("Wrong options: expected a map")
    found: dict[str, Any] = value
    return found


def increment_us(value: Any) -> int:
    """How much more time a touch gives, in µs."""
    if type(value) not in (int, float) or not isfinite(value):
        raise failure("attr.increment must be number")
    if value < 0:
        raise failure("attr.increment can't be negative")
    return min(round(float(value) * SECOND_US), NEVER_US)


def new_key(engine: EnginePort, records: Records, task: dict[str, Any]) -> Any:
    """The key of a new record, from its generator or, if it is `required`, from the record."""
    generator = records.features["id"]
    if generator == "required":
        layout = records.layout
        key = task.get(layout.format[layout.pk][0])
        if key is None:
            raise failure("Primary key is mandatory")
        return key
    if generator == "uuid":
        text = engine.sessions.new_uuid().hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    if ":" in generator:
        return engine.functions(generator)()
    return records.next_key(engine.now)


def statistics(index: RecordIndex, pretty: bool) -> dict[str, Any]:
    """{counts, transition, tube: {name: the same}}; `pretty` spells the statuses out."""

    def names(counts: dict[str, int]) -> dict[str, int]:
        return {PRETTY[k] if pretty else k: n for k, n in counts.items()}

    tubes = {
        name: {"counts": names(counts), "transition": dict(transitions)}
        for name, (counts, transitions) in index.by_tube.items()
    }
    return {
        "counts": names(index.counts),
        "transition": dict(index.transitions),
        "tube": tubes,
    }
