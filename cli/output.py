"""What commands print: tables for people, JSON lines for programs, one line for an error.

Results go to standard output; notes, progress and errors to standard error.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import os
import shutil
import sys
import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Any

_WIDTH_UNSEEN = 1000
OK, REFUSED, USAGE, UNREACHABLE, NOTHING = 0, 1, 2, 3, 4


class CommandError(Exception):
    """Ends the command: one line of what is wrong, one hint of what to do, an exit code."""

    def __init__(self, text: str, code: int, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.hint = hint


def one_line(text: str) -> str:
    """Without anything that could move a terminal's cursor."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def complain(error: CommandError) -> None:
    """Print it to standard error, a line for each mistake."""
    for line in error.text.splitlines() or ["failed"]:
        print(f"error: {one_line(line)}", file=sys.stderr)
    if error.hint:
        print(f"       {one_line(error.hint)}", file=sys.stderr)


def note(text: str) -> None:
    """Something worth knowing that is no result."""
    print(f"note: {one_line(text)}", file=sys.stderr)


def plain(value: Any) -> Any:
    """`value` with everything JSON has no word for as text; bytes as text or base64."""
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, decimal.Decimal | uuid.UUID | datetime.datetime):
        return str(value)
    return repr(value)


def json_line(value: Any) -> None:
    """One JSON document on one line of standard output."""
    print(json.dumps(plain(value), ensure_ascii=False, separators=(", ", ": ")))


def cell(value: Any) -> str:
    """A value for a table: text as it is, everything else as JSON."""
    value = plain(value)
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Collection[str] = ()
) -> None:
    """A table on standard output; `right` names the columns of numbers."""
    drawn = [[cell(value) for value in row] for row in rows]
    # Where nobody looks, nothing is folded: scripts read these lines too.
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_UNSEEN
    lines = plain_table(columns, drawn, right)
    if len(lines[1]) <= room and all(line.isascii() for line in (lines[0], *lines[2:])):
        if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
            lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
        print("\n".join(lines))
    else:
        _folded(columns, drawn, right, room)


def plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str]
) -> list[str]:
    """The lines of a table whose every letter is one column wide."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [
        "   ".join(
            text.rjust(width) if name in right else text.ljust(width)
            for name, text, width in zip(columns, row, widths, strict=True)
        )
        for row in (columns, *rows)
    ]
    return [lines[0], "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * len(lines[0]), *lines[1:]]


def _folded(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str], room: int
) -> None:
    """The same where it does not fit, or letters have widths of their own."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        number = column in right
        drawn.add_column(
            column, justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    for row in rows:
        drawn.add_row(*(Text(text) for text in row))
    Console(width=room).print(drawn)
