"""Log lines for people or programs, on standard error: never a payload, never a secret.

Control characters are escaped, so that nothing a client sends can forge a line.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import IO

from tandemq_server.node.loop.log_events import event_of

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(0x80, 0xA0))}


def escape(text: str) -> str:
    """`text` on one line, whatever was in it."""
    return text.translate(_ESCAPES)


class Logger:
    """level: debug info warning error; format: human or json (one object a line)."""

    def __init__(self, level: str, form: str, stream: IO[str] | None = None) -> None:
        self._threshold = LEVELS[level]
        self._json = form == "json"
        self._stream = stream
        #: What a line of JSON says besides: where the node stood when it was written.
        self.context: Callable[[], dict[str, object]] = dict

    def debug(self, text: str) -> None:
        self._write("debug", text)

    def info(self, text: str) -> None:
        self._write("info", text)

    def warning(self, text: str) -> None:
        self._write("warning", text)

    def error(self, text: str) -> None:
        self._write("error", text)

    def exception(self, text: str, error: BaseException) -> None:
        """An error of ours: the line, and where it came from as a second field."""
        trace = "".join(traceback.format_exception(error))
        self._write("error", text, trace)

    def _write(self, level: str, text: str, trace: str = "") -> None:
        event = event_of(text) if self._json or level == "info" else None
        if event is not None and level == "info":
            # What needs a person is not lost among what does not, whoever said it.
            level = max(level, event.level, key=LEVELS.__getitem__)
        if LEVELS[level] < self._threshold:
            return
        stream = sys.stderr if self._stream is None else self._stream
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if event is not None and self._json:
            entry: dict[str, object] = {"time": now, "level": level, "event": event.name}
            entry |= {**self.context(), **event.fields, "message": text}
            if trace:
                entry["trace"] = trace
            line = json.dumps(entry, ensure_ascii=True)
        else:
            line = f"{now} {level:7} {escape(text)}"
            if trace:
                line += "\n" + "\n".join("  | " + escape(part) for part in trace.splitlines())
        print(line, file=stream, flush=True)
