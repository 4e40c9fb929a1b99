"""What `tandemq import` finds in a Tarantool: tubes of the module, spaces of 1.5 and xqueue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from tandemq_server.cli.output import REFUSED, USAGE, CommandError, note
from tandemq_server.cli.raw_client import ALL, RawConnection

VSPACE, VSPACE_NAME, VSPACE_FORMAT = 281, 2, 6
DRIVERS = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")
OPTIONS = ("ttl", "ttr", "pri", "capacity", "storage_mode")
VINDEX, VINDEX_PARTS = 289, 5
RECORDS = "xqueue"
#: What a declaration in a file may say; format and indexes are read from the source.
DECLARED = frozenset({"fields", "features", "tube_stats", "compat"})


@dataclass(slots=True)
class ImportSource:
    """A tube to be, and the space its tasks lie in. copied: now; total: imported in all."""

    tube: str
    kind: str
    space: int
    options: dict[str, Any]
    key_at: int = 0
    copied: int = 0
    total: int = 0


def space_id(old: RawConnection, name: str) -> int:
    return int(_described(old, name)[0])


def tubes(old: RawConnection, wanted: list[str]) -> list[ImportSource]:
    if not old.select(VSPACE, ["_queue"], index=VSPACE_NAME):
        return []
    found = []
    for raw in old.select(space_id(old, "_queue"), [], iterator=ALL):
        name, _, space, kind, opts = msgpack.unpackb(raw, strict_map_key=False)[:5]
        if wanted and name not in wanted:
            continue
        opts = opts if isinstance(opts, dict) else {}
        if kind not in DRIVERS:
            note(f"tube {name} is left out: its type {kind} is not one of the queue module's")
        elif opts.get("temporary"):
            note(f"tube {name} is left out: its tasks are temporary")
        else:
            given = {key: opts[key] for key in OPTIONS if opts.get(key) is not None}
            found.append(ImportSource(name, kind, space_id(old, space), given))
    return found


def space15(old: RawConnection, text: str) -> ImportSource:
    name, _, number = text.rpartition(":")
    if not name or not number.isascii() or not number.isdigit():
        raise CommandError(f"--space15: {text} (expected SPACE:N)", USAGE)
    space = int(name) if name.isascii() and name.isdigit() else space_id(old, name)
    return ImportSource(f"space{number}", "queue15", space, {})


def records(old: RawConnection, text: str) -> ImportSource:
    """`SPACE` or `SPACE=FILE`, a space of xqueue; its format and indexes are read there."""
    name, equals, file = text.partition("=")
    row = _described(old, name)
    if not row[VSPACE_FORMAT]:
        raise CommandError(f"space {name} has no format there: xqueue needs one", REFUSED)
    indexes = [_parts(name, index) for index in _indexes(old, row[0])]
    if not indexes or len(indexes[0]) != 1:
        raise CommandError(f"space {name}: its primary key has more than one part", REFUSED)
    # Without a file: what the declaration that is here has to agree with.
    options: dict[str, Any] = {
        "format": [_format(field) for field in row[VSPACE_FORMAT]],
        "indexes": [{"parts": parts} for parts in indexes],
        **(_file(file) if equals else {}),
    }
    return ImportSource(name, RECORDS, row[0], options, indexes[0][0] - 1)


def declare(new: RawConnection, one: ImportSource) -> None:
    """Declare a tube of records as its file says, or see that it is declared here and fits."""
    if "fields" in one.options:
        new.call("xqueue.upgrade", one.tube, one.options)
        return
    rows = new.select(space_id(new, "_queue"), [one.tube])
    kind, opts = msgpack.unpackb(rows[0], strict_map_key=False)[3:5] if rows else ("", {})
    if kind != RECORDS:
        raise CommandError(
            f"no xqueue {one.tube} is declared here",
            REFUSED,
            f"declare it by xqueue.upgrade, or say --xqueue {one.tube}=FILE",
        )
    if opts["format"] != one.options["format"] or opts["pk"] != one.key_at:
        raise CommandError(f"xqueue {one.tube} has another format or key there", REFUSED)


def _described(old: RawConnection, name: str) -> list[Any]:
    rows = old.select(VSPACE, [name], index=VSPACE_NAME)
    if not rows:
        raise CommandError(f"no space {name} there that this user may read", REFUSED)
    row: list[Any] = msgpack.unpackb(rows[0], strict_map_key=False)
    return row


def _indexes(old: RawConnection, space: int) -> list[list[Any]]:
    """Rows of `_vindex`, the primary one first."""
    rows = [msgpack.unpackb(raw, strict_map_key=False) for raw in old.select(VINDEX, [space])]
    return sorted(rows, key=lambda row: int(row[1]))


def _parts(space: str, index: list[Any]) -> list[int]:
    """Fields of an index, from 1; `[field, type]` or `{field, type, collation}` there."""
    found = []
    for part in index[VINDEX_PARTS]:
        if isinstance(part, dict) and part.get("collation") and not index[1]:
            raise CommandError(
                f"space {space}: its key has a collation, which Tandem has not", REFUSED
            )
        found.append(int(part["field"] if isinstance(part, dict) else part[0]) + 1)
    return found


def _format(field: dict[str, Any]) -> list[Any]:
    kind = field.get("type", "any")
    return [field["name"], "any" if kind == "*" else kind, bool(field.get("is_nullable"))]


def _file(path: str) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise CommandError(f"--xqueue: {path}: {reason}", USAGE) from error
    if not isinstance(found, dict) or "fields" not in found or not found.keys() <= DECLARED:
        expected = ", ".join(sorted(DECLARED))
        raise CommandError(f"--xqueue: {path}: expected fields, and of {expected}", USAGE)
    return found
