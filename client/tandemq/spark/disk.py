"""The files of a log wherever PyArrow can read them: local, or by URI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow.fs as pafs

from tandemq.log import shipped
from tandemq.model.errors import StorageError
from tandemq.model.units import KIB, MIB
from tandemq.spark.folder import ArrowFolder

#: Bytes looked at at a time: what fits into a processor's cache is twice as quick to go through,
#: and what comes over a network comes in larger pieces.
WINDOW_NEAR, WINDOW_FAR = 256 * KIB, 8 * MIB


class ArrowDisk(ArrowFolder):
    """The `tandemq.log.disk.ReadDisk` over any file system that PyArrow or Spark paths name.

    The folder of an archive that `tandemq archive ship` fills reads as the directory it is of, as
    far as its newest line goes; so does the folder of one line.
    """

    def __init__(self, path: str) -> None:
        """`path`: local, or a URI such as file:///... or hdfs://... . Raises `StorageError`."""
        super().__init__(path)
        #: Of an archive: where its files are, by name. None: not looked at yet.
        self._shipped: dict[str, str] | None = None

    def list(self) -> list[str]:
        names = super().list()
        self._shipped = self._line_among(names)
        return sorted(name for name in self._shipped or names if name != "lock")

    def _line_among(self, names: Iterable[str]) -> dict[str, str]:
        """Where the files of an archive's newest line are; nothing where there is no archive."""
        last, above = self.base.rpartition("/")[2], ""
        if shipped.LINE_NAME.match(last):
            names, above = [f"{last}/{name}" for name in names], f"{last}/"
        lines = shipped.manifests(names)
        for line in reversed(lines):
            found = shipped.newest(
                lambda name: self.read(name.removeprefix(above)), line, lines[line]
            )
            if found is not None:
                files = shipped.files_of(*found).items()
                objects = {name: shipped.object_name(line, name, size) for name, size in files}
                return {name: one.removeprefix(above) for name, one in objects.items()}
        return {}

    def _place(self, name: str) -> str:
        """Where a file is that is not below its own name: in an archive, or nowhere."""
        if self._shipped is None:
            self.list()
        return self.path((self._shipped or {}).get(name, name))

    def windows(self, name: str, end: int, overlap: int) -> Iterator[tuple[int, memoryview]]:
        """(where it begins, bytes) of a file up to byte `end`, window by window.

        Each begins with the last `overlap` bytes of the one before, whose bytes are gone by then.
        """
        near = isinstance(self.system, pafs.LocalFileSystem)
        view = memoryview(bytearray(overlap + (WINDOW_NEAR if near else WINDOW_FAR)))
        kept = at = 0
        with self.named("read", name), self.file(name) as file:
            while (room := min(len(view) - kept, end - at)) > 0:
                got = file.readinto(view[kept : kept + room])
                if not got:
                    return  # cut off in the meantime
                yield at - kept, view[: kept + got]
                at += got
                behind = kept + got
                kept = min(overlap, behind)
                view[:kept] = bytes(view[behind - kept : behind])

    def size(self, name: str) -> int:
        info = self.system.get_file_info(self.path(name))
        if info.type != pafs.FileType.File:
            info = self.system.get_file_info(self._place(name))
        if info.type != pafs.FileType.File:
            raise StorageError(f"{self.where}/{name}", 0, "read: no such file")
        return int(info.size)

    def file(self, name: str) -> Any:
        """A PyArrow file for random reading."""
        try:
            return self.system.open_input_file(self.path(name))
        except FileNotFoundError:
            if (place := self._place(name)) == self.path(name):
                raise
            return self.system.open_input_file(place)


def named(disk: ArrowDisk, error: StorageError) -> StorageError:
    """The same error, its file with the directory before it."""
    if error.file.startswith(disk.where):
        return error
    return StorageError(f"{disk.where}/{error.file}", error.position, error.reason)
