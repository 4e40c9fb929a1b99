"""The command line `tandemq`: one module for each kind of command, all of them thin.

Here: flags, tables, exit codes. Must not be here: anything a library could do; heavy imports wait
until the command that needs them runs, so that a node starts lean.
"""

from __future__ import annotations

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code (see `tandemq --help`)."""
    from tandemq_server.cli.app import run

    return run(argv)
