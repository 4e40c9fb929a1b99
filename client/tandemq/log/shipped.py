"""Where things are in an archive that `tandemq archive ship` fills: names, and what a line holds.

LINE/manifest-NUMBER.json    what the line holds; the newest whole one counts
LINE/files/NAME@BYTES        a file of the data directory, so many bytes of it
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from tandemq.model.errors import StorageError

VERSION = 1
#: Of a manifest, the parts that name files.
PARTS = ("snapshots", "segments", "beside")
_FILES = "files/"
_LINE = r"line-\d{16}-[0-9a-f]{8}"
LINE_NAME = re.compile(rf"^{_LINE}$")
_MANIFEST = re.compile(rf"^({_LINE})/manifest-(\d{{10}})\.json$")


def object_name(line: str, name: str, size: int) -> str:
    return f"{line}/{_FILES}{name}@{size}"


def manifest_name(line: str, number: int) -> str:
    return f"{line}/manifest-{number:010d}.json"


def manifests(paths: Iterable[str]) -> dict[str, list[int]]:
    """Of each line, oldest first, the numbers of its manifests, newest first."""
    numbers: dict[str, list[int]] = {}
    for path in paths:
        if found := _MANIFEST.match(path):
            numbers.setdefault(found[1], []).append(int(found[2]))
    return {name: sorted(numbers[name], reverse=True) for name in sorted(numbers)}


def newest(
    read: Callable[[str], bytes], line: str, numbers: Iterable[int]
) -> tuple[str, dict[str, Any]] | None:
    """(its path, what it says) of a line's newest whole manifest.

    One that was cut off by its writer's end is not there yet: the one before counts. Raises
    `StorageError` for what is no manifest, or one of a later version.
    """
    for number in numbers:
        path = manifest_name(line, number)
        try:
            value = json.loads(read(path))
        except ValueError:
            continue
        try:
            version = value.pop("version")
            if version > VERSION:
                raise StorageError(path, 0, f"version {version} is newer than {VERSION}")
        except (TypeError, KeyError, AttributeError) as error:
            raise not_shipped(path, error) from None
        return path, value
    return None


def files_of(path: str, value: dict[str, Any]) -> dict[str, int]:
    """Names and sizes of the files a manifest names. Raises `StorageError`."""
    try:
        parts = (value[part] for part in PARTS)
        return {name: int(one["size"]) for part in parts for name, one in part.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise not_shipped(path, error) from None


def not_shipped(path: str, error: Exception) -> StorageError:
    return StorageError(path, 0, f"is not what shipping writes: {error}")
