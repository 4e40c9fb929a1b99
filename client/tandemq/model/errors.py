"""Errors by blame: the caller's (`QueueError`), the disk's (`StorageError`), ours (assertions).

Codes and texts are those of the field's connectors. Nothing here logs or decides what happens next.
"""

from __future__ import annotations

from collections.abc import Mapping

ER_ILLEGAL_PARAMS = 1
ER_UNSUPPORTED = 5
ER_READONLY = 7
ER_KEY_PART_TYPE = 18
ER_EXACT_MATCH = 19
ER_INVALID_MSGPACK = 20
ER_FIELD_TYPE = 23
ER_PROC_LUA = 32
ER_NO_SUCH_PROC = 33
ER_NO_SUCH_INDEX = 35
ER_NO_SUCH_SPACE = 36
ER_FIELD_MISSING = 39
ER_ACCESS_DENIED = 42
ER_CREDS_MISMATCH = 47
ER_UNKNOWN_REQUEST_TYPE = 48
ER_MISSING_REQUEST_FIELD = 69
ER_IDENTIFIER = 70
ER_TUPLE_TOO_LARGE = 110
ER_LOADING = 116
ER_UNKNOWN_AUTH_METHOD = 249


class QueueError(Exception):
    """A request that cannot be served: answered to the caller, changes nothing.

    `code` is an IPROTO error code (see `/spec` tables in docs/compatibility.md), `text` one line,
    never empty, `kind` the extended error type, `fields` its optional details, `line` the source
    line reported in the error frame (one connector's fail-over looks for a fixed number there).
    """

    __slots__ = ("code", "fields", "kind", "line", "text")

    def __init__(
        self,
        code: int,
        text: str,
        kind: str = "ClientError",
        fields: Mapping[str, str] | None = None,
        line: int = 0,
    ) -> None:
        assert text, "an error without a text reads as success to some connectors"
        super().__init__(text)
        self.code = code
        self.text = text
        self.kind = kind
        self.fields = fields
        self.line = line


def failure(text: str) -> QueueError:
    """An error of the queue module itself (code 32), matched by clients on its text."""
    return QueueError(ER_PROC_LUA, text, "LuajitError")


def task_not_found(task_id: object) -> QueueError:
    return failure(f"Task {task_id} not found")


def not_taken() -> QueueError:
    return failure("Task was not taken")


def no_such_proc(name: str) -> QueueError:
    return QueueError(ER_NO_SUCH_PROC, f"Procedure '{name}' is not defined")


class StorageError(Exception):
    """A file that is refused by name: which file, which byte, why. Never skipped over."""

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(f"{file}: byte {position}: {reason}")
        self.file = file
        self.position = position
        self.reason = reason


class GaveUp(Exception):
    """Compiled code met frames that only plain Python reads."""
