"""A job ended at its n-th step on the disk, as by a kill; in the middle of a file it writes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest


class Steps:
    """What writes to a disk in this process is counted; the one of this number ends it."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int) -> None:
        self.taken, self.last = 0, last
        for module, name in (
            (os, "replace"),
            (os, "fsync"),
            (shutil, "rmtree"),
            (pq, "write_table"),
        ):
            patch.setattr(module, name, self._counted(getattr(module, name)))
        patch.setattr(Path, "write_bytes", lambda path, data: self._torn(path, data))

    @property
    def over(self) -> bool:
        """Whether it came to its end before."""
        return self.taken < self.last

    def _counted(self, real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            self._step()
            return real(*args, **more)

        return call

    def _step(self) -> None:
        self.taken += 1
        if self.taken == self.last:
            raise SystemExit

    def _torn(self, path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            self._step()
            return file.write(data[len(data) // 2 :])
