"""A folder of an archive wherever PyArrow reaches: a local path, s3://, gs://, hdfs://.

Here: the one place that touches that library for archives. Must not be here: what is stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import StorageError
from tandemq_server.cli.output import USAGE, CommandError

if TYPE_CHECKING:
    from tandemq_server.storage.archived import ObjectWriter

_LONGEST = 300


class ArrowStore:
    """`tandemq_server.storage.archived.ArchiveStore` over a PyArrow file system."""

    def __init__(self, url: str) -> None:
        """Raises `CommandError` for an address nobody understands."""
        try:
            from pyarrow import fs
        except ImportError:
            raise CommandError(
                "archives need PyArrow", USAGE, "pip install 'tandemq-server[archive]'"
            ) from None
        self.where = url
        self._kinds = fs
        try:
            self._fs, base = (
                fs.FileSystem.from_uri(url)
                if "://" in url
                else (fs.LocalFileSystem(), os.path.abspath(url))
            )
        except (OSError, ValueError) as error:
            raise CommandError(f"{url}: {_line(error)}", USAGE) from None
        self._base = base.rstrip("/")

    def list(self) -> list[str]:
        selector = self._kinds.FileSelector(self._base, recursive=True, allow_not_found=True)
        with self._named("list", ""):
            infos = self._fs.get_file_info(selector)
        skip = len(self._base) + 1
        return sorted(one.path[skip:] for one in infos if one.type == self._kinds.FileType.File)

    def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
        with self._named("read", name), self._fs.open_input_file(self._path(name)) as file:
            file.seek(position)
            data: bytes = file.read() if length < 0 else file.read(length)
            return data

    @contextmanager
    def write(self, name: str) -> Iterator[ObjectWriter]:
        path = self._path(name)
        near = isinstance(self._fs, self._kinds.LocalFileSystem)
        with self._named("write", name):
            if not isinstance(self._fs, self._kinds.S3FileSystem):
                self._fs.create_dir(path.rpartition("/")[0], recursive=True)
            stream = self._fs.open_output_stream(path)
        try:
            yield _ObjectStream(self, name, stream)
        finally:
            with self._named("write", name):
                stream.close()
                if near:
                    _settle(path)

    def remove(self, name: str) -> None:
        with self._named("remove", name):
            self._fs.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    @contextmanager
    def _named(self, operation: str, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            where = f"{self.where.rstrip('/')}/{name}".rstrip("/")
            raise StorageError(where, 0, f"{operation}: {_line(error)}") from error


class _ObjectStream:
    """One stream; its errors name the object."""

    def __init__(self, store: ArrowStore, name: str, stream: Any) -> None:
        self._store, self._name, self._stream = store, name, stream

    def write(self, data: bytes) -> None:
        with self._store._named("write", self._name):
            self._stream.write(data)


def _settle(path: str) -> None:
    """A file and its folder reach the device: an archive outlives a power cut, too."""
    for one in (path, path.rpartition("/")[0]):
        handle = os.open(one, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _line(error: Exception) -> str:
    text = " ".join(str(error).split(". Detail:")[0].split())
    return text[:_LONGEST]
