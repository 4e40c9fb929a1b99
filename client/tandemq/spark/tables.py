"""Tables of a catalog: what `CREATE TABLE ... USING` was told, kept where Spark keeps it.

Spark hands a Python source the OPTIONS of a table when the table is made, among its properties, and
never again: the wrapper on the JVM's side passes on the columns alone. So a table that is made
without columns of its own gets ours, and the first of them carries the options as metadata, which
the catalog stores and a query brings back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import types as t
from pyspark.sql.types import StructType

from tandemq.spark import options as opt

#: Name of the options in a column's metadata.
KEPT = "tandemq.options"
#: How Spark marks an option among the properties of a table, and what each table's properties have.
PREFIX, OWNER = "option.", "owner"
TYPES: dict[str, t.DataType] = {
    "STRING": t.StringType(),
    "BINARY": t.BinaryType(),
    "BOOLEAN": t.BooleanType(),
    "INT": t.IntegerType(),
    "BIGINT": t.LongType(),
    "FLOAT": t.FloatType(),
    "DOUBLE": t.DoubleType(),
    "DATE": t.DateType(),
    "TIMESTAMP": t.TimestampType(),
}


def is_made(given: Mapping[str, str]) -> bool:
    """Whether these are the properties of a table that is being made, not a query's options."""
    return OWNER in given and any(name.startswith(PREFIX) or name == "path" for name in given)


def asked(given: Mapping[str, str]) -> dict[str, str]:
    """The options: of a table being made those its OPTIONS and LOCATION named."""
    if not is_made(given):
        return dict(given)
    found = {name[len(PREFIX) :]: given[name] for name in given if name.startswith(PREFIX)}
    return found | ({"path": given["path"]} if "path" in given else {})


def columns(ddl: str) -> list[tuple[str, str]]:
    """Names and types of `name TYPE, name TYPE`. Raises `ValueError`."""
    found = []
    for text in ddl.split(","):
        name, _, kind = text.strip().partition(" ")
        if not name or kind.strip().upper() not in TYPES:
            raise ValueError(
                f"a table's columns are `name TYPE` with commas between, a type one of "
                f"{', '.join(TYPES)}, not {text.strip()!r}"
            )
        found.append((name, kind.strip().upper()))
    return found


def keeping(ddl: str, given: Mapping[str, str]) -> StructType:
    """These columns, with the options of the table that is being made."""
    kept = {KEPT: json.dumps(asked(given), sort_keys=True)}
    fields = [t.StructField(name, TYPES[kind]) for name, kind in columns(ddl)]
    fields[0] = t.StructField(fields[0].name, fields[0].dataType, True, kept)
    return StructType(fields)


def kept(schema: StructType) -> dict[str, str]:
    """The options of the table that has these columns; none where it is no table."""
    found: dict[str, str] = {}
    for field in schema.fields:
        found |= json.loads((field.metadata or {}).get(KEPT, "{}"))
    return found


def values_of(
    name: str,
    known: tuple[opt.Option, ...],
    given: Mapping[str, str],
    schema: StructType,
    places: Iterable[str],
) -> dict[str, Any]:
    """A query's values: the table's, and what the query says besides.

    places: options that say where it goes; a query that names one asks no table.
    """
    lower = {one.lower() for one in given}
    alone = any(place.lower() in lower for place in places)
    return opt.parse(name, known, {**({} if alone else kept(schema)), **given})
