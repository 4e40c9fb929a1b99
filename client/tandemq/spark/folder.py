"""A folder of files wherever PyArrow reaches: a local path, s3://, gs://, hdfs://."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.fs as pafs

from tandemq.model.errors import StorageError

#: Characters of an error: some libraries send whole pages.
_LONGEST = 300


class ArrowFolder:
    """The files as they lie there; errors say of what they are, on one line.

    system, base: what PyArrow calls the file system, and the path of the folder within it.
    """

    def __init__(self, path: str, absent: bool = False) -> None:
        """`path`: local, or a URI such as file:///... or hdfs://... . Raises `StorageError`.

        absent: a folder that is not there holds nothing; else listing it is an error.
        """
        self.where = path
        self._absent = absent
        with self.named("open"):
            if "://" in path or path.startswith("file:"):
                self.system, base = pafs.FileSystem.from_uri(path)
            else:
                self.system, base = pafs.LocalFileSystem(), path
        self.base = base.rstrip("/")

    @contextmanager
    def named(self, operation: str, name: str = "") -> Iterator[None]:
        """An error of the file system becomes a `StorageError`."""
        try:
            yield
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split(". Detail:")[0].split())[:_LONGEST]
            where = f"{self.where.rstrip('/')}/{name}" if name else self.where
            raise StorageError(where, 0, f"{operation}: {reason}") from error

    def path(self, name: str) -> str:
        return f"{self.base}/{name}"

    def list(self) -> list[str]:
        selector = pafs.FileSelector(self.base, recursive=True, allow_not_found=self._absent)
        with self.named("list"):
            infos = self.system.get_file_info(selector)
        skip = len(self.base) + 1
        return sorted(info.path[skip:] for info in infos if info.type == pafs.FileType.File)

    def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
        with self.named("read", name), self.file(name) as file:
            file.seek(position)
            data: bytes = file.read() if length < 0 else file.read(length)
            return data

    def file(self, name: str) -> Any:
        """A PyArrow file for random reading."""
        return self.system.open_input_file(self.path(name))
