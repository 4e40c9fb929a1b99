"""Options of the data sources: one table each, unknown ones refused with the list of known."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Option(NamedTuple):
    """`default` None: not set. Names are matched without regard to case, as Spark does."""

    name: str
    default: str | None
    says: str


LOG_OPTIONS = (
    Option("path", None, "data directory or archive; several with commas between"),
    Option("paths", None, "the same as a JSON list (what `load([...])` passes)"),
    Option("columns", None, "columns to read, with commas between; `*` is all"),
    Option("payloadJson", "false", "add the column payload_json"),
    Option("rescue", "false", "read the rescue files of rewinds, too (batch)"),
    Option("fromLsn", None, "first LSN to read (batch)"),
    Option("toLsn", None, "last LSN to read (batch)"),
    Option("fromTime", None, "segments that end before this moment (ISO 8601) are left out"),
    Option("toTime", None, "segments that begin after this moment are left out"),
    Option("tubes", None, "tubes to read, with commas between; default all, and what has none"),
    Option("operations", None, "operations to read, with commas between; default all"),
    Option("pushdown", "false", "narrow by the query's filters; see docs/spark.md before use"),
    Option("mode", "FAILFAST", "FAILFAST: damage fails the query; PERMISSIVE: a row `damaged`"),
    Option("badRecordsPath", None, "PERMISSIVE: folder that gets a JSON file per damage"),
    Option("until", "end", "how far to read: end of the log, or `commit` (as published)"),
    Option("batchRows", "65536", "rows of one Arrow batch, at most; 4 MiB of records"),
    Option("splitBytes", "16777216", "larger segments are read in parts (streams: 4 MiB at most)"),
    Option("maxRecordsPerBatch", "250000", "streams: records of one micro-batch, at most"),
    Option("startingLsn", "earliest", "streams: earliest, latest or the first LSN"),
)
#: Why what was given with CREATE TABLE may not be there.
LOST = "of a table made with columns of its own Spark keeps no options: use the option columns"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
#: Set by streaming queries for Spark itself, and handed to the source or sink as well.
SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
FLAGS = {"true": True, "false": False}


def parse(format_name: str, known: tuple[Option, ...], given: Mapping[str, str]) -> dict[str, Any]:
    """Values by option name, defaults filled in. Raises `ValueError` for an unknown option."""
    by_lower = {option.name.lower(): option for option in known}
    values: dict[str, Any] = {option.name: option.default for option in known}
    for name, value in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        option = by_lower.get(name.lower())
        if option is None:
            names = ", ".join(option.name for option in known)
            raise ValueError(f"{format_name} has no option {name!r}; its options are {names}")
        values[option.name] = value
    return values


def flag(values: Mapping[str, Any], name: str) -> bool:
    text = str(values[name]).lower()
    if text not in FLAGS:
        raise ValueError(f"option {name} is true or false, not {values[name]!r}")
    return FLAGS[text]


def number(values: Mapping[str, Any], name: str, least: int = 1) -> int:
    text = str(values[name]).strip()
    if not text.isdigit() or int(text) < least:
        raise ValueError(f"option {name} is a whole number from {least}, not {values[name]!r}")
    return int(text)


def names(values: Mapping[str, Any], name: str) -> frozenset[str] | None:
    """A set of names with commas between; None where the option is not set."""
    if values[name] is None:
        return None
    return frozenset(part.strip() for part in str(values[name]).split(",") if part.strip())


def lsn(text: str) -> int:
    if not text.strip().isdigit():
        raise ValueError("is no LSN")
    return int(text)


def time_us(text: str) -> int:
    """Microseconds of an ISO 8601 moment; UTC where it names no zone."""
    moment = datetime.datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)


def bounds(
    values: Mapping[str, Any], low: str, high: str, read: Callable[[str], int]
) -> tuple[int, int]:
    """Two inclusive bounds, as wide as can be where an option is not set."""
    found = [0, 2**63 - 1]
    for at, name in enumerate((low, high)):
        if values[name] is not None:
            try:
                found[at] = read(str(values[name]))
            except ValueError as error:
                raise ValueError(f"option {name}: {values[name]!r}: {error}") from None
    return found[0], found[1]


def choice(values: Mapping[str, Any], name: str, among: tuple[str, ...]) -> str:
    for known in among:
        if str(values[name]).lower() == known.lower():
            return known
    raise ValueError(f"option {name} is {' or '.join(among)}, not {values[name]!r}")


def paths(values: Mapping[str, Any]) -> list[str]:
    """Directories named by `path` and `paths`. Raises `ValueError` when there is none."""
    found: list[str] = []
    if values["paths"]:
        found += json.loads(values["paths"])
    if values["path"]:
        found += [part.strip() for part in values["path"].split(",") if part.strip()]
    if not found:
        raise ValueError(f"tandemq_log needs a path: a data directory or an archive ({LOST})")
    return found
