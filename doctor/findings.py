"""What an examination says: one line of what is so, and one of what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tandemq.model.units import GIB

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """where: the directory, file or node examined. todo: the next step, empty when all is well."""

    where: str
    check: str
    level: Level
    text: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Beyond these something is worth a warning. Bytes and seconds; descriptors as a share."""

    free_bytes: int = GIB
    sync_s: float = 0.05
    lag_s: float = 10.0
    clock_s: float = 1.0
    files_used: float = 0.8
