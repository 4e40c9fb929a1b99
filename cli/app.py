"""The tree of commands, and what happens to an error on its way out.

Here: putting the modules of this package together. Must not be here: any command's work.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tandemq_server.cli.as_given import lighten
from tandemq_server.cli.output import CommandError, complain

EXIT_OK, EXIT_USAGE, EXIT_INTERRUPTED = 0, 2, 130
#: Whatever the parser complains about; where typer keeps this class depends on its version.
PARSER_ERROR: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
EPILOG = (
    "Exit codes: 0 done, 1 refused (by the server, or a check failed), 2 wrong usage or "
    "configuration, 3 server unreachable, 4 nothing there in time, 5 the node's log failed."
)

#: Where each command is, in the order of the help: a module is imported when it is needed.
HOMES = {
    "tandemq_server.cli.serve": ("serve",),
    "tandemq_server.cli.witness": ("witness",),
    "tandemq_server.cli.cluster": ("status", "role", "switchover", "solo"),
    "tandemq_server.cli.failover": ("failover",),
    "tandemq_server.cli.top": ("top",),
    "tandemq_server.cli.doctor": ("doctor",),
    "tandemq_server.cli.tasks": (
        *("put", "take", "ack", "release", "bury", "kick", "delete", "peek"),
    ),
    "tandemq_server.cli.known": ("info",),
    "tandemq_server.cli.history": ("history",),
    "tandemq_server.cli.tubes": ("stats", "create", "alter", "drop", "tubes", "snapshot"),
    "tandemq_server.cli.grants": ("grant", "revoke", "grants"),
    "tandemq_server.cli.importing": ("import",),
    "tandemq_server.cli.manage": ("pause", "resume", "redrive"),
    "tandemq_server.cli.many": ("list", "bulk"),
    "tandemq_server.cli.backup": ("backup", "restore"),
    "tandemq_server.cli.archive": ("archive",),
    "tandemq_server.cli.bench": ("bench",),
    "tandemq_server.cli.files": ("log",),
    "tandemq_server.cli.rescue": ("rescue",),
    "tandemq_server.cli.config": ("config", "hash-password"),
    "tandemq.client.work": ("work",),
    "tandemq.pipeline.cli": ("pipeline",),
}
PANELS = ("Node", "Tasks", "Tubes", "Rights", "Applications", "Data")


class Commands(TyperGroup):
    """All commands, of which only those are imported and made that somebody asks for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in HOMES.values() for name in names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        for home, names in HOMES.items():
            if cmd_name in names and cmd_name not in self.commands:
                self.commands[cmd_name] = _made(home, cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.list_commands(ctx):
            for name in self.list_commands(ctx):  # one of them may have been meant
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
        for home in HOMES:
            part = _part(home)
            declared: list[Any] = [*part.registered_commands, *part.registered_groups]
            for info in declared:
                rows[info.rich_help_panel].append((_name(info), _first_words(info)))
        width = max(len(name) for name in self.list_commands(ctx)) + 2
        for panel, lines in rows.items():
            with formatter.section(panel):
                formatter.write_dl([(name.ljust(width), text) for name, text in lines])


def _part(home: str) -> typer.Typer:
    """What a module declares; nothing is made of it yet."""
    part = typer.Typer(rich_markup_mode=None)
    importlib.import_module(home).add_to(part)
    return part


def _made(home: str, name: str) -> Any:
    """One command of a module, ready to run."""
    part = _part(home)
    part.registered_commands = [one for one in part.registered_commands if _name(one) == name]
    part.registered_groups = [one for one in part.registered_groups if _name(one) == name]
    made = typer.main.get_group(part).commands[name]
    lighten(made)
    return made


def _name(info: Any) -> str:
    return str(info.name or typer.main.get_command_name(info.callback.__name__))


def _first_words(info: Any) -> str:
    """The first paragraph of what a command says of itself."""
    text = typer.main.solve_typer_info_help(info) if hasattr(info, "typer_instance") else None
    text = text or info.help or (info.callback.__doc__ or "")
    return " ".join(text.strip().split("\n\n")[0].split())


app = typer.Typer(
    name="tandemq",
    cls=Commands,
    help="Tandem, a task-queue server that every stock Tarantool connector can use.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: frames cost more time than all the rest of the command.
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
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


def run(argv: list[str] | None) -> int:
    """Run the words given (default: the process's); an error becomes one line and a code."""
    command = typer.main.get_command(app)
    lighten(command)
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
