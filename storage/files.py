"""The real disk: one directory, one process (lock file), one spare file descriptor.

The only module of this room that touches the operating system. It decides nothing: it does what
its name says and turns every `OSError` into a `StorageError`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from tandemq.log.disk import RESCUE_PREFIX
from tandemq.model.errors import StorageError

LOCK_NAME = "lock"
_OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: Payloads are the company's work: nobody else on the machine reads them, whatever the umask.
_FILE_MODE, _FOLDER_MODE = 0o600, 0o700


class FileDisk:
    """A data directory, created when missing, held by `flock` until `release`.

    `read_only` takes no lock and creates nothing: for looking at a directory a server is using.
    Raises `StorageError` at once when another process holds the directory.
    """

    def __init__(self, directory: str | Path, read_only: bool = False) -> None:
        self.directory = Path(directory)
        self.read_only = read_only
        self._names: dict[int, str] = {}
        self._lock = self._spare = self._folder = self._rescue = -1
        try:
            if not read_only:
                for folder in (self.directory, self.directory / RESCUE_PREFIX):
                    _private_folder(folder)
                self._lock = self._take_lock()
                self._rescue = os.open(self.directory / RESCUE_PREFIX, _FOLDER_FLAGS)
            self._folder = os.open(self.directory, _FOLDER_FLAGS)
            self._reserve()
        except OSError as error:
            self.release()
            raise self._failure("open", self.where, error) from error
        except StorageError:
            self.release()
            raise

    @property
    def where(self) -> str:
        return str(self.directory)

    def _take_lock(self) -> int:
        """Hold the lock file, with our pid in it. Raises `StorageError` naming the holder."""
        lock = os.open(self.directory / LOCK_NAME, _OPEN_FLAGS | os.O_CREAT, _FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            raise StorageError(self.where, 0, f"directory is in use by process {holder}") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        return lock

    def _reserve(self) -> None:
        """Keep one descriptor back, so that a flood of connections cannot stop a roll."""
        if self._spare < 0:
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def release(self) -> None:
        """Give the directory and all descriptors back. May be called twice."""
        for handle in list(self._names):
            os.close(handle)
        self._names.clear()
        for handle in (self._lock, self._spare, self._folder, self._rescue):
            if handle >= 0:
                os.close(handle)
        self._lock = self._spare = self._folder = self._rescue = -1

    def _failure(
        self, operation: str, name: str, error: OSError, position: int = 0
    ) -> StorageError:
        reason = error.strerror or str(error)
        return StorageError(name, position, f"{operation}: {reason}")

    def _path(self, name: str) -> Path:
        """Of a file of this directory, wherever the name came from."""
        plain = name.removeprefix(RESCUE_PREFIX)
        if not plain or "/" in plain or "\0" in plain or plain in (".", ".."):
            raise StorageError(name[:200], 0, "is no name of a file in the data directory")
        return self.directory / name

    def _open(self, operation: str, name: str, flags: int) -> int:
        """Open for appending, on the spare descriptor when there is no other."""
        path = self._path(name)
        try:
            try:
                handle = os.open(path, flags, _FILE_MODE)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or self._spare < 0:
                    raise
                os.close(self._spare)
                self._spare = -1
                handle = os.open(path, flags, _FILE_MODE)
            os.lseek(handle, 0, os.SEEK_END)
            if flags & os.O_CREAT:
                os.fchmod(handle, _FILE_MODE)
        except OSError as error:
            raise self._failure(operation, name, error) from error
        self._names[handle] = name
        return handle

    # -- the contract of tandemq.log.disk.Disk ----------------------------------------------

    def list(self) -> list[str]:
        try:
            # Without a Path and a stat of each: there may be thousands, and links wait meanwhile.
            with os.scandir(self.directory) as entries:
                names = [entry.name for entry in entries if entry.is_file()]
            rescue = self.directory / RESCUE_PREFIX
            if rescue.is_dir():
                names += [RESCUE_PREFIX + name for name in os.listdir(rescue)]
        except OSError as error:
            raise self._failure("list", self.where, error) from error
        return sorted(name for name in names if name != LOCK_NAME)

    def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
        try:
            with self._path(name).open("rb", buffering=0) as file:
                file.seek(position)
                if length < 0:
                    return file.readall()
                parts = []
                while length > 0 and (part := file.read(length)):
                    parts.append(part)
                    length -= len(part)
                return parts[0] if len(parts) == 1 else b"".join(parts)
        except OSError as error:
            raise self._failure("read", name, error, position) from error

    def size(self, name: str) -> int:
        try:
            return self._path(name).stat().st_size
        except OSError as error:
            raise self._failure("size", name, error) from error

    def create(self, name: str) -> int:
        return self._open("create", name, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL)

    def open(self, name: str) -> int:
        return self._open("open", name, _OPEN_FLAGS)

    def append(self, handle: int, data: bytes) -> int:
        try:
            return os.write(handle, data)
        except OSError as error:
            raise self._failure("append", self._names.get(handle, "?"), error) from error

    def overwrite(self, handle: int, data: bytes) -> None:
        name = self._names.get(handle, "?")
        try:
            written = os.pwrite(handle, data, 0)
        except OSError as error:
            raise self._failure("overwrite", name, error) from error
        if written != len(data):
            raise StorageError(name, written, "overwrite: short write")

    def sync(self, handle: int) -> None:
        try:
            os.fdatasync(handle)
        except OSError as error:
            raise self._failure("sync", self._names.get(handle, "?"), error) from error

    def close(self, handle: int) -> None:
        name = self._names.pop(handle, "?")
        try:
            os.close(handle)
            self._reserve()
        except OSError as error:
            raise self._failure("close", name, error) from error

    def rename(self, old: str, new: str) -> None:
        try:
            self._path(old).replace(self._path(new))
        except OSError as error:
            raise self._failure("rename", old, error) from error

    def remove(self, name: str) -> None:
        try:
            self._path(name).unlink()
        except OSError as error:
            raise self._failure("remove", name, error) from error

    def truncate(self, name: str, size: int) -> None:
        try:
            with self._path(name).open("r+b", buffering=0) as file:
                file.truncate(size)
                os.fsync(file.fileno())
        except OSError as error:
            raise self._failure("truncate", name, error, size) from error

    def settle(self, name: str) -> None:
        try:
            with self._path(name).open("r+b", buffering=0) as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise self._failure("settle", name, error) from error

    def sync_dir(self) -> None:
        try:
            for folder in (self._folder, self._rescue):
                if folder >= 0:
                    os.fsync(folder)
        except OSError as error:
            raise self._failure("sync_dir", self.where, error) from error

    def free(self) -> int:
        try:
            state = os.fstatvfs(self._folder)
        except OSError as error:
            raise self._failure("free", self.where, error) from error
        return state.f_bavail * state.f_frsize


def _private_folder(folder: Path) -> None:
    """Made if missing; closed to others if it is ours to close."""
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    state = folder.stat()
    if stat.S_IMODE(state.st_mode) != _FOLDER_MODE and state.st_uid == os.geteuid():
        folder.chmod(_FOLDER_MODE)
