"""A folder of an archive wherever PyArrow reaches: a local path, s3://, gs://, hdfs://.

Here: writing and removing objects; reading is shared with Spark's sources. Must not be here:
what is stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import StorageError
from tandemq_server.cli.output import USAGE, CommandError

if TYPE_CHECKING:
    from tandemq.spark.folder import ArrowFolder
    from tandemq_server.storage.archived import ObjectWriter


class ArrowStore:
    """`tandemq_server.storage.archived.ArchiveStore` over a PyArrow file system."""

    def __init__(self, url: str) -> None:
        """Raises `CommandError` for an address nobody understands."""
        try:
            from tandemq.spark.folder import ArrowFolder
        except ImportError:
            raise CommandError(
                "archives need PyArrow", USAGE, "pip install 'tandemq-server[archive]'"
            ) from None
        self.where = url
        try:
            self._folder = ArrowFolder(url if "://" in url else os.path.abspath(url), absent=True)
        except StorageError as error:
            raise CommandError(f"{url}: {error.reason}", USAGE) from None
        self.list, self.read = self._folder.list, self._folder.read

    @contextmanager
    def write(self, name: str) -> Iterator[ObjectWriter]:
        from pyarrow import fs

        folder, path = self._folder, self._folder.path(name)
        with folder.named("write", name):
            if not isinstance(folder.system, fs.S3FileSystem):
                folder.system.create_dir(path.rpartition("/")[0], recursive=True)
            stream = folder.system.open_output_stream(path)
        try:
            yield _ObjectStream(folder, name, stream)
        finally:
            with folder.named("write", name):
                stream.close()
                if isinstance(folder.system, fs.LocalFileSystem):
                    _settle(path)

    def remove(self, name: str) -> None:
        with self._folder.named("remove", name):
            self._folder.system.delete_file(self._folder.path(name))


class _ObjectStream:
    """One stream; its errors name the object."""

    def __init__(self, folder: ArrowFolder, name: str, stream: Any) -> None:
        self._folder, self._name, self._stream = folder, name, stream

    def write(self, data: bytes) -> None:
        with self._folder.named("write", self._name):
            self._stream.write(data)


def _settle(path: str) -> None:
    """A file and its folder reach the device: an archive outlives a power cut, too."""
    for one in (path, path.rpartition("/")[0]):
        handle = os.open(one, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
