"""The tree of commands, and what happens to an error on its way out.

Here: putting the modules of this package together. Must not be here: any command's work.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from node.cli import (
    backup,
    bench,
    cluster,
    config,
    doctor,
    files,
    importing,
    manage,
    many,
    rescue,
    serve,
    tasks,
    top,
    tubes,
)
from node.cli.output import CommandError, complain

EXIT_OK, EXIT_USAGE, EXIT_INTERRUPTED = 0, 2, 130
#: Whatever the parser complains about; where typer keeps this class depends on its version.
PARSER_ERROR: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
EPILOG = (
    "Exit codes: 0 done, 1 refused (by the server, or a check failed), 2 wrong usage or "
    "configuration, 3 server unreachable, 4 nothing there in time, 5 the node's log failed."
)

app = typer.Typer(
    name="tandemq",
    help="Tandem, a task-queue server that every stock Tarantool connector can use.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"tandemq {version('tandemq')}")
        raise typer.Exit


@app.callback()
def _options(
    _version_wanted: Annotated[
        bool, typer.Option("--version", help="Tell the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options that every command has."""


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
    rich_help_panel="Node",
)
def demo(context: typer.Context) -> None:
    """Run the main job: a node, and a polite crawl frontier on real URLs (demo --help)."""
    from node import demo as demonstration

    raise typer.Exit(demonstration.main(list(context.args)))


for commands in (
    serve,
    cluster,
    top,
    doctor,
    tasks,
    tubes,
    importing,
    manage,
    many,
    backup,
    bench,
    files,
    rescue,
    config,
):
    commands.add_to(app)


# Rooms above this one bring their commands by entry points: they are not imported by name here.
for entry in entry_points(group="tandemq.commands"):
    loaded = entry.load()
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=entry.name, rich_help_panel="Data")
    else:
        app.command(entry.name, rich_help_panel="Applications")(loaded)


def run(argv: list[str] | None) -> int:
    """Run the words given (default: the process's); an error becomes one line and a code."""
    command = typer.main.get_command(app)
    try:
        code = command.main(argv, prog_name="tandemq", standalone_mode=False)
    except CommandError as error:
        complain(error)
        return error.code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except PARSER_ERROR as error:
        usage = _usage(error)
        if usage.text:
            complain(usage)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has had enough (head, less): no error, but nothing more either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    return code if isinstance(code, int) else EXIT_OK


def _usage(error: Any) -> CommandError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tandemq"
    return CommandError(error.format_message(), EXIT_USAGE, f"`{path} --help` tells more")
