"""The command `tandemq`: the server's, where that is installed, else what applications need.

Here: which of the two it is. Must not be here: any command's work.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from importlib.util import find_spec

#: What the server's command has, too.
HOMES = ("tandemq.client.work", "tandemq.pipeline.cli")


def main(argv: list[str] | None = None) -> int:
    """Run the words given (default: the process's); returns the exit code."""
    # What is imported stays: looking for garbage in it takes a quarter of the time to import it.
    gc.set_threshold(100_000, 50, 1_000)
    if find_spec("tandemq_server") is not None:
        # The server's commands come by name only: this distribution does not depend on it.
        return int(import_module("tandemq_server.cli").main(argv))
    import typer

    app = typer.Typer(
        name="tandemq",
        help="What applications do with Tandem. A node: pip install tandemq-server.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback(invoke_without_command=True)
    def options(
        tell: bool = typer.Option(False, "--version", help="Tell the version.", is_eager=True),
    ) -> None:
        if tell:
            from importlib.metadata import version

            sys.stdout.write(f"tandemq {version('tandemq')}\n")
            raise typer.Exit

    for home in HOMES:
        try:
            import_module(home).add_to(app)
        except ImportError:
            continue  # its extra is not installed
    code = typer.main.get_command(app)(argv, prog_name="tandemq", standalone_mode=True)
    return code if isinstance(code, int) else 0
