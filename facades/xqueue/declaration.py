"""The declaration of an xqueue tube: fields, features and format, checked and spelt out.

Order of the checks and texts are those of the original's `upgrade`.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from tandemq_server.drivers.base import DriverMisuse

LOGICAL = ("status", "runat", "priority", "tube")
FEATURES = frozenset(
    {"id", "retval", "buried", "delayed", "keep", "zombie", "ttl", "ttr", "zombie_delay"}
)
OPTIONS = frozenset(
    {
        "compat",
        "debug",
        "features",
        "fields",
        "format",
        "indexes",
        "retval",
        "tube_stats",
        "worker",
        "workers",
    }
)
#: Options of other tube types that mean nothing here, or that this type has its own way for.
REFUSED = frozenset(
    {
        "capacity",
        "capacity_bytes",
        "dead_letter",
        "delay",
        "max_attempts",
        "overflow",
        "pri",
        "retry_delay",
        "retry_delay_max",
        "retry_factor",
        "retry_jitter",
        "storage_mode",
        "ttl",
        "ttr",
    }
)
WORKERS_MAX = 1_000
IDS = ("auto_increment", "time64", "uuid", "required")
_STRINGS = frozenset({"str", "STR", "string"})
_NUMBERS = frozenset({"num", "NUM", "number", "unsigned"})
_OTHER = "any array boolean decimal double integer map scalar uuid varbinary datetime"
_TYPES = _STRINGS | _NUMBERS | set(_OTHER.split())
_KINDS = {"status": _STRINGS, "tube": _STRINGS, "runat": _NUMBERS, "priority": _NUMBERS}


def check(opts: dict[str, Any]) -> dict[str, Any]:
    """Options as they are stored: format as [name, type, nullable], fields as positions from 0.

    Raises `DriverMisuse` with the texts of the original, before anything is made.
    """
    for option in sorted(REFUSED & opts.keys()):
        if opts[option] is not None:
            raise DriverMisuse(f"xqueue does not support option {option}")
    if opts.get("compat") not in (None, "fixed", "strict"):
        raise DriverMisuse(f"Invalid value of compat: {opts['compat']} (expected fixed or strict)")
    given = opts.get("fields")
    if type(given) is not dict or not given:
        raise DriverMisuse("opts.fields required")
    form = _format(opts.get("format"))
    names = {field[0]: at for at, field in enumerate(form)}
    fields = _fields(given, form, names)
    indexes = opts.get("indexes")
    pk = _primary(indexes, names)
    _check_key(form[pk][1])
    if indexes:
        _check_indexes(indexes, names, fields, pk)
    features = _features(opts.get("features"), form[pk][1], fields)
    stats = opts.get("tube_stats")
    if stats is not None and type(stats) is not list:
        raise DriverMisuse("Invalid value of tube_stats: expected a list of names of tubes")
    if stats and "tube" not in fields:
        raise DriverMisuse("tube_stats requires field tube")
    found = {key: value for key, value in opts.items() if key not in OPTIONS | {"engine"}}
    found["format"] = form
    found["fields"] = fields
    found["features"] = features
    found["pk"] = pk
    found["tube_stats"] = [name for name in stats or [] if type(name) is str]
    if opts.get("compat") == "strict":
        found["compat"] = "strict"
    found.update(_workers(opts.get("worker"), opts.get("workers")))
    return found


def _workers(worker: Any, workers: Any) -> dict[str, Any]:
    if worker is None:
        if workers is not None:
            raise DriverMisuse("workers requires worker")
        return {}
    if type(worker) is not str or not all(worker.partition(":")):
        raise DriverMisuse(f"Wrong type for worker {worker}: expected 'module:function'")
    workers = 1 if workers is None else workers
    if type(workers) is not int or not 1 <= workers <= WORKERS_MAX:
        raise DriverMisuse(f"Wrong type for workers {workers}: expected 1 to {WORKERS_MAX}")
    return {"worker": worker, "workers": workers}


def _format(given: Any) -> list[list[Any]]:
    """[[name, type, nullable], ...] from what Tarantool accepts as a format."""
    if type(given) is not list or not given:
        raise DriverMisuse("opts.format required: a list of {name = ..., type = ...}")
    found: list[list[Any]] = []
    names: set[str] = set()
    for number, field in enumerate(given, 1):
        name: Any = None
        kind: Any = "any"
        nullable: Any = False
        if type(field) is dict:
            name, kind = field.get("name"), field.get("type", "any")
            nullable = field.get("is_nullable", False)
        elif type(field) is list and field:
            name, kind = field[0], field[1] if len(field) > 1 else "any"
            nullable = field[2] if len(field) > 2 else False
        if type(name) is not str or not name:
            raise DriverMisuse(f"Wrong space format: field {number} has no name")
        if name in names:
            raise DriverMisuse(f"Space field '{name}' is duplicate")
        names.add(name)
        if kind == "*":
            kind = "any"
        if type(kind) is not str or kind not in _TYPES:
            raise DriverMisuse(f"Wrong space format: field {number} has unknown field type")
        found.append([name, kind, bool(nullable)])
    return found


def _fields(given: dict[str, Any], form: list[list[Any]], names: dict[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for logical in LOGICAL:
        field = given.get(logical)
        if field is None:
            continue
        at = _position(field, names, logical)
        if at is None:
            raise DriverMisuse(f"unknown field {field} for {logical}")
        kind = form[at][1]
        if kind not in _KINDS[logical]:
            required = "str" if _KINDS[logical] is _STRINGS else "num"
            raise DriverMisuse(
                f"type mismatch for field {form[at][0]}, required {required}, got {kind}"
            )
        if at in found.values():
            raise DriverMisuse(f"field {form[at][0]} cannot be two of {', '.join(LOGICAL)}")
        found[logical] = at
    for logical in given:
        if logical not in (*LOGICAL, "id"):
            raise DriverMisuse(f"unknown logical field {logical}: may be {', '.join(LOGICAL)}")
    if "status" not in found:
        raise DriverMisuse("opts.fields.status required")
    return found


def _position(field: Any, names: dict[str, int], logical: str) -> int | None:
    if type(field) is int:
        return field - 1 if 1 <= field <= len(names) else None
    if type(field) is str:
        return names.get(field)
    raise DriverMisuse(
        f"wrong type {_lua_type(field)} for field {logical}, number or string required"
    )


def _lua_type(value: Any) -> str:
    if value is True or value is False:
        return "boolean"
    return {float: "number", list: "table", dict: "table"}.get(type(value), "userdata")


def _parts(index: Any, names: dict[str, int]) -> list[int | None]:
    """Fields of an index in any of the shapes Tarantool accepts: names, numbers, {field, type}."""
    parts = index.get("parts") if type(index) is dict else None
    if type(parts) is not list or not parts:
        raise DriverMisuse("opts.indexes: each index needs parts, a list of fields")
    found: list[int | None] = []
    for part in parts:
        field = part
        if type(part) is dict:
            field = part.get("field", part.get("fieldno"))
        elif type(part) is list and part:
            field = part[0]
        if type(field) is str and field in _TYPES:
            continue
        found.append(_position(field, names, "index"))
    return found


def _primary(indexes: Any, names: dict[str, int]) -> int:
    """Position of the key: the first declared index's only part; the first field by itself."""
    if indexes is None:
        return 0
    if type(indexes) is not list or not indexes:
        raise DriverMisuse("Invalid value of indexes: expected a list, the primary one first")
    parts = _parts(indexes[0], names)
    if len(parts) != 1:
        raise DriverMisuse("Composite primary keys are not supported yet")
    if parts[0] is None:
        raise DriverMisuse("opts.indexes: the primary index names an unknown field")
    return parts[0]


def _check_key(kind: str) -> None:
    if kind not in _STRINGS | _NUMBERS:
        raise DriverMisuse(f"Unknown key type {kind}")


def _check_indexes(
    indexes: list[Any], names: dict[str, int], fields: dict[str, int], pk: int
) -> None:
    """Declared indexes must serve the queue, as in the original; Tandem keeps its own anyway."""
    declared = [_parts(index, names) for index in indexes]
    order = [fields["status"], *([fields["priority"]] if "priority" in fields else []), pk]
    wanted = "status + priority + id" if "priority" in fields else "status + id"
    if not any(parts[: len(order)] == order for parts in declared):
        raise DriverMisuse(f"not found index by {wanted}")
    if "tube" in fields:
        order = [fields["tube"], *order]
        if not any(parts[: len(order)] == order for parts in declared):
            raise DriverMisuse(f"not found index by tube + {wanted}")
    if "runat" in fields and not any(parts[0] == fields["runat"] for parts in declared):
        raise DriverMisuse("fields.runat requires tree index with this first field in it")


def _features(given: Any, key: str, fields: dict[str, int]) -> dict[str, Any]:
    if given is None or given == []:
        given = {}
    if type(given) is not dict:
        raise DriverMisuse("Invalid value of features: expected a map")
    for feature in given:
        if feature not in FEATURES:
            raise DriverMisuse(f"Unknown feature {feature}")
    found = {name: value for name, value in given.items() if value not in (None, False)}
    found.pop("zombie_delay", None)
    _check_generator(found.setdefault("id", "uuid"), key)
    if found.setdefault("retval", "table") not in ("table", "tuple"):
        raise DriverMisuse(
            f"Wrong type for features.retval {found['retval']}, may be table | tuple"
        )
    for name in ("buried", "delayed", "keep"):
        if name in found and found[name] is not True:
            raise DriverMisuse(f"Wrong type for features.{name}: expected true or false")
    if "keep" in found and "zombie" in found:
        raise DriverMisuse("features keep and zombie are mutually exclusive")
    if "delayed" in found and "runat" not in fields:
        raise DriverMisuse("Delayed feature requires runat field and index")
    for name in ("zombie", "ttl", "ttr"):
        value = found.get(name)
        if value is None:
            continue
        if "runat" not in fields:
            raise DriverMisuse(f"feature {name} requires runat field and index")
        if value is not True and (
            type(value) not in (int, float) or not isfinite(value) or value < 0
        ):
            raise DriverMisuse(f"Wrong type for features.{name}: expected true or seconds")
    return found


def _check_generator(generator: Any, key: str) -> None:
    if type(generator) is str and ":" in generator:
        return
    if generator not in IDS:
        raise DriverMisuse(
            f"Wrong type for features.id {generator}, may be 'auto_increment' | 'time64' | "
            "'uuid' | 'required' | function"
        )
    if generator in ("auto_increment", "time64") and key not in _NUMBERS:
        raise DriverMisuse(f"For {generator} numeric pk is mandatory")
    if generator == "uuid" and key not in _STRINGS:
        raise DriverMisuse("For uuid string pk is mandatory")


def string_key(opts: dict[str, Any]) -> bool:
    """Whether keys are text."""
    return opts["format"][opts["pk"]][1] in _STRINGS
