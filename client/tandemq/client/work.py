"""The command `tandemq work`: flags, signals, log lines and exit codes around the runner.

Here: what a terminal or a service manager sees. Must not be here: how tasks are worked on.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandemq.client.flags import TlsCa, TlsCert, TlsKey, TlsServerName
from tandemq.client.tls import Tls

if TYPE_CHECKING:
    from tandemq.client.worker import Tally

EXIT_REFUSED, EXIT_USAGE, EXIT_UNREACHABLE = 1, 2, 3
Tubes = Annotated[
    list[str],
    typer.Option(
        metavar="TUBE[=WEIGHT]",
        help="Take tasks from there; of several, as often as their weights say.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """As a command of `tandemq`."""
    app.command(rich_help_panel="Applications")(work)


def work(
    target: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="Called as f(task).")],
    tube: Tubes,
    concurrency: Annotated[int, typer.Option(min=1, max=10_000, help="Tasks at a time.")] = 1,
    server: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", envvar="TANDEMQ_SERVER", help="All nodes.")
    ] = "127.0.0.1:3301",
    user: Annotated[str | None, typer.Option(envvar="TANDEMQ_USER", help="Else guest.")] = None,
    password_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Variable with the password.")
    ] = "TANDEMQ_PASSWORD",
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
    ttr: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds a worker has, 0: never touch. Unless given: the task's."),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(min=1, help="Then a task is buried. Unless given: the tube's, or 5."),
    ] = None,
    backoff: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds after a first failure. Unless given: the tube's, or 1."),
    ] = None,
    drain: Annotated[float, typer.Option(min=0, help="Seconds to end after SIGTERM.")] = 30.0,
) -> None:
    """Run a function for every task of tubes; SIGTERM or Ctrl-C ends it after those in hand."""
    _log_to_the_terminal()
    wanted = [_weighed(one) for one in tube]
    handler = _load(target)
    password = os.environ.get(password_env) if user is not None else None
    import asyncio

    from tandemq.client.api import connect
    from tandemq.client.errors import Refused, TandemError, Unavailable
    from tandemq.client.tube import Tube
    from tandemq.client.worker import work as run

    async def whole() -> Tally:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        tls = Tls.of(tls_ca, tls_cert, tls_key, tls_server_name)
        async with connect(server, user=user, password=password, tls=tls) as client:
            options: dict[str, Any] = {"max_attempts": max_attempts, "backoff": backoff}
            sources: list[tuple[Tube, float]] = [
                (client.tube(name, ttr=ttr, **options), weight) for name, weight in wanted
            ]
            names = ", ".join(name for name, _ in wanted)
            logging.info("working on %s at %s, %d at a time", names, client.node, concurrency)
            return await run(sources, handler, concurrency, stop, drain)

    try:
        tally = asyncio.run(whole())
    except ValueError as error:
        _end(str(error), EXIT_USAGE)
    except Unavailable as error:
        _end(f"{error}; {error.todo}", EXIT_UNREACHABLE)
    except Refused as error:
        _end(f"{error}; {error.todo or 'check --tube and the rights of the user'}", EXIT_REFUSED)
    except TandemError as error:
        _end(str(error), EXIT_UNREACHABLE)
    else:
        logging.info(
            "drained: %d done, %d failed, %d lost, %d unknown",
            *(tally.done, tally.failed, tally.lost, tally.unknown),
        )


def _log_to_the_terminal() -> None:
    form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, stream=sys.stderr)


def _weighed(word: str) -> tuple[str, float]:
    """("jobs", 3.0) of "jobs=3"; 1 unless given."""
    name, equals, weight = word.rpartition("=")
    if not equals:
        return word, 1.0
    try:
        found = float(weight)
    except ValueError:
        found = 0.0
    if not name or not 0 < found < math.inf:
        _end(f"--tube: {weight} in {word} is no weight: a number above 0", EXIT_USAGE)
    return name, found


def _load(target: str) -> Any:
    module, colon, name = target.partition(":")
    if not colon or not module or not name:
        _end(f"{target} is not MODULE:FUNCTION", EXIT_USAGE)
    sys.path.insert(0, str(os.getcwd()))
    found = None
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        _end(f"{target}: {error}; the working directory is searched too", EXIT_USAGE)
    except AttributeError:
        _end(f"{target}: {module} has no {name}", EXIT_USAGE)
    if not callable(found):
        _end(f"{target} is not a function", EXIT_USAGE)
    return found


def _end(text: str, code: int) -> Any:
    print(f"error: {text}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(code)
