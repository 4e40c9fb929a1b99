"""How a demonstration ends: the last table, the last line, the exit code.

Here: printing. Must not be here: judging (verdict.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from asynctnt.exceptions import TarantoolError
from rich.console import Console
from rich.table import Table

from demo.history import History
from demo.node_process import NodeFailed
from demo.team import NoMaster
from demo.verdict import Verdict
from tandemq_server.admin.client import AdminError, AdminUnreachable

EXIT_OK, EXIT_FAILED = 0, 1
CAUSES = (NodeFailed, OSError, TarantoolError, AdminError, AdminUnreachable, NoMaster)


def first_cause(error: BaseException) -> BaseException:
    """The first one of a group; with many requests in flight all failed alike."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def show(
    console: Console, verdict: Verdict, history: History, more: Sequence[tuple[str, str]]
) -> None:
    """The verdict's table with `more` below it, what clients were told, the last line."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for label, figure in (*verdict.lines(), *more):
        table.add_row(label, figure)
    console.print(table)
    for text in history.errors():
        console.print(f"a client was told: {text}", highlight=False, markup=False, soft_wrap=True)
    console.print(verdict.last_line(), highlight=False, markup=False, soft_wrap=True)
