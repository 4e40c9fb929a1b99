"""The trail's file: one JSON object a line, appended by a thread, rotated by size or by SIGHUP.

The loop never waits for it. What cannot be written is counted, said in the node's log, and told by
the first line that can be; operations go on. Must not be here: what is noted (node/core/trail.py).
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandemq.model.units import KIB
from tandemq_server.node.core.trail import Noted
from tandemq_server.node.core.trail_answers import TrailEntry, TrailPage

if TYPE_CHECKING:
    from tandemq_server.config import Settings
    from tandemq_server.statemachine.roles import Transition

#: Entries kept for who asks, and bytes of the file that are read for them at the start.
SHOWN_MAX, TAIL_BYTES = 1000, 512 * KIB
#: Lines that wait for the disk at most.
WAITING_MAX = 10_000
#: The same refusal of the same caller is written once in so many seconds, with a count.
REPEAT_SECONDS, CALLERS_MAX = 60.0, 1000
#: A failing file is complained of this often, in seconds.
COMPLAIN_SECONDS = 60.0
CLOSE_SECONDS = 2.0
Report = Callable[[str], None]


class AuditTrail:
    """Of one node. `path` None: entries are kept in memory alone."""

    def __init__(
        self, name: str, path: Path | None, max_bytes: int, keep: int, report: Report
    ) -> None:
        """`report(text)` may be called from the writing thread. Raises OSError: no such file."""
        self.name = name
        self.path = path
        self.report = report
        #: Lines that were not written: no room in the queue, or the disk refused.
        self.lost = 0
        self.problem = ""
        self._number = 0
        self._entries: deque[TrailEntry] = deque(maxlen=SHOWN_MAX)
        self._repeats: dict[tuple[str, ...], _Repeat] = {}
        self._swept = time.monotonic()
        self._waiting: queue.Queue[str | None] = queue.Queue(WAITING_MAX)
        self._untold = 0
        self._complained = 0.0
        self._file: _OwnerOnlyFile | None = None
        self._reopen = False
        if path is not None:
            self._recall(path)
            self._file = _OwnerOnlyFile(path, max_bytes, keep)
            self._thread = threading.Thread(target=self._write, name="audit trail", daemon=True)
            self._thread.start()

    # -- in the loop -----------------------------------------------------------------------------

    def note(self, noted: Noted) -> None:
        """Keep it. Refusals that repeat are counted instead of being written each."""
        now = time.monotonic()
        if now - self._swept >= REPEAT_SECONDS:
            self._sweep(now)
        if noted.outcome == "refused":
            # Not by its target: who may do nothing could think of ever new ones.
            key = (noted.by, noted.user, noted.address.rpartition(":")[0], noted.action)
            found = self._repeats.get(key)
            if found is not None and now - found.since < REPEAT_SECONDS:
                found.last = noted
                found.count += 1
                return
            if len(self._repeats) >= CALLERS_MAX:
                self._sweep(now + REPEAT_SECONDS)
            self._repeats[key] = _Repeat(now, noted)
        self._add(noted)

    def _sweep(self, now: float) -> None:
        """Write how often refusals came again that were not written."""
        self._swept = now
        for key, found in list(self._repeats.items()):
            if now - found.since >= REPEAT_SECONDS:
                del self._repeats[key]
                if found.count:
                    self._add(found.last, found.count)

    def _add(self, noted: Noted, repeated: int = 0) -> None:
        self._number += 1
        entry = TrailEntry(
            self._number,
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            self.name,
            noted.by,
            noted.user,
            noted.address,
            noted.action,
            noted.target,
            noted.details,
            noted.outcome,
            noted.error,
            repeated,
        )
        self._entries.append(entry)
        if self._file is None:
            return
        try:
            self._waiting.put_nowait(_line(entry))
        except queue.Full:
            self._lose("the disk is too slow")

    def page(self, limit: int, before: int) -> TrailPage:
        """The newest entries below the number `before` (0: all), newest first."""
        found = [one for one in reversed(self._entries) if not before or one.id < before]
        where = str(self.path) if self.path is not None else None
        return TrailPage(where, self.lost, self.problem, tuple(found[:limit]))

    def reopen(self) -> None:
        """Somebody has moved the file away: go on in a new one."""
        self._reopen = True
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait("")

    def close(self) -> None:
        """Write what waits; a disk that hangs is not waited for."""
        self._sweep(time.monotonic() + REPEAT_SECONDS)
        if self._file is None:
            return
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(CLOSE_SECONDS)

    def role(self, made: Transition) -> None:
        """The node's own role changed, whoever requested it."""
        way = f"{made.origin.value} to {made.target.value}"
        self.note(Noted("node", "", "", "role", way, made.reason))

    # -- in the thread ---------------------------------------------------------------------------

    def _write(self) -> None:
        assert self._file is not None
        while (line := self._waiting.get()) is not None:
            try:
                if self._reopen:
                    self._reopen = False
                    self._file.reopen()
                if self._untold and line:
                    self._file.write(self._confession())
                    self._untold = 0
                if line:
                    self._file.write(line)
                    self.problem = ""
            except (OSError, ValueError) as error:
                self._lose(str(error))
        self._file.close()

    def _confession(self) -> str:
        noted = TrailEntry(
            0,
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            self.name,
            *("node", "", "", "lines lost", "", self._untold, "failed", self.problem, 0),
        )
        return _line(noted)

    def _lose(self, why: str) -> None:
        self.lost += 1
        self._untold += 1
        self.problem = f"{self.path}: {why}"
        now = time.monotonic()
        if now - self._complained >= COMPLAIN_SECONDS or not self._complained:
            self._complained = now
            count = f"{self.lost} lines so far"
            self.report(f"the audit trail is not written: {self.problem} ({count})")

    # -- the start -------------------------------------------------------------------------------

    def _recall(self, path: Path) -> None:
        """What the process before wrote last."""
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            for line in file.read().splitlines()[-SHOWN_MAX:]:
                with contextlib.suppress(ValueError, TypeError):
                    self._number += 1
                    self._entries.append(TrailEntry(**{**json.loads(line), "id": self._number}))


def trail_of(settings: Settings, report: Report) -> AuditTrail:
    """As configured; a folder that is missing is made. Raises OSError."""
    path, audit = settings.audit_path, settings.audit
    if path is not None:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
    return AuditTrail(settings.name, path, audit.max_bytes, audit.keep, report)


@dataclass(slots=True)
class _Repeat:
    since: float
    last: Noted
    count: int = 0


def _line(entry: TrailEntry) -> str:
    found: dict[str, Any] = {
        name: getattr(entry, name) for name in TrailEntry.__slots__ if name != "id"
    }
    return json.dumps(found)


class _OwnerOnlyFile(logging.handlers.RotatingFileHandler):
    """The library's rotation, for its owner alone; what fails is raised."""

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=keep, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        return open(
            self.baseFilename,
            "a",
            encoding="utf-8",
            opener=lambda path, flags: os.open(path, flags, 0o600),
        )

    def write(self, line: str) -> None:
        """Append one line and hand it to the kernel. Raises OSError, ValueError."""
        record = logging.LogRecord("", 0, "", 0, line, (), None)
        if self.stream is None:
            self.stream = self._open()
        if self.shouldRollover(record):
            self.doRollover()
        assert self.stream is not None
        self.stream.write(line + "\n")
        self.stream.flush()

    def reopen(self) -> None:
        self.close_stream()
        self.stream = self._open()

    def close_stream(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
