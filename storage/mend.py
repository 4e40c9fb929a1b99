"""Damaged ends and files: put aside, never thrown away.

What is put aside is evidence for people; nothing here reads it again.
"""

from __future__ import annotations

from model.errors import StorageError
from storage.disk import Disk, write_file

SUFFIX_TORN = ".torn"


def keep_torn(disk: Disk, name: str, position: int) -> str:
    """Copy what stands in a file from `position` on to another, durably. Returns what to say.

    A disk that has no room for a copy that nobody needs must not keep a node from starting.
    """
    aside = free_name(disk, name + SUFFIX_TORN)
    try:
        write_file(disk, aside, disk.read(name, position))
    except StorageError as error:
        return f"not kept: {error}"
    return f"kept in {aside}"


def free_name(disk: Disk, wanted: str) -> str:
    """`wanted`, or with a number behind it when there is such a file already."""
    names = disk.list()
    number, name = 1, wanted
    while name in names:
        number += 1
        name = f"{wanted}.{number}"
    return name
