"""`tandemq doctor`: what is wrong with a configuration, a data directory or a node, line by line.

Here: what is examined, and how it is shown. Must not be here: examinations (doctor).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandemq.client.tls import Tls
from tandemq_server.cli.cluster import DEFAULT_ADMIN, TokenEnv, admin_tls_of, client_of
from tandemq_server.cli.output import REFUSED, USAGE, CommandError, json_line, one_line
from tandemq_server.cli.remote import Json, seconds
from tandemq_server.cli.serve import Set, assignments
from tandemq_server.cli.shared import given
from tandemq_server.config.units import parse_bytes, split_address

if TYPE_CHECKING:
    from tandemq_server.doctor.findings import Bounds, Finding

_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Node")(doctor)


@given(tls=admin_tls_of)
def doctor(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR|HOST:PORT]...",
            help="Data directories, and admin addresses of nodes.",
            envvar="TANDEMQ_ADMIN_SERVER",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A node's configuration.")
    ] = None,
    settings: Set = None,
    token_env: TokenEnv = "TANDEMQ_ADMIN_TOKEN",
    min_free: Annotated[
        str, typer.Option(metavar="SIZE", help="Warn when less is free on the disk.")
    ] = "1GiB",
    max_sync: Annotated[
        str, typer.Option(metavar="TIME", help="Warn when making data durable takes longer.")
    ] = "50ms",
    max_lag: Annotated[
        str, typer.Option(metavar="TIME", help="Warn when a replica is further behind.")
    ] = "10s",
    max_clock: Annotated[
        str, typer.Option(metavar="TIME", help="Warn when clocks differ by more.")
    ] = "1s",
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    *,
    tls: Tls | None,
    as_lines: Json = False,
) -> None:
    """Examine a node: its configuration, its files, itself; say what is wrong and what to do next.

    With --config also its ports, its peers, its data directory and, if it runs, its admin API. With
    nothing named the node at 127.0.0.1:8081. Exit code 1 for an error, with --strict for a
    warning, too.
    """
    from tandemq_server.doctor.findings import Bounds

    try:
        free = parse_bytes(int(min_free) if min_free.isdigit() else min_free)
    except ValueError as error:
        raise CommandError(f"--min-free: {min_free} {error}", USAGE) from None
    bounds = Bounds(
        free_bytes=free,
        sync_s=seconds(max_sync, "--max-sync"),
        lag_s=seconds(max_lag, "--max-lag"),
        clock_s=seconds(max_clock, "--max-clock"),
    )
    if not targets and config is None and not settings:
        targets = [DEFAULT_ADMIN]
    worst = {"ok": 0, "warning": 0, "error": 0}
    exam = Examination(bounds, token_env, tls)
    for finding in exam.run(targets or [], config, settings):
        worst[finding.level] += 1
        _show(finding, as_lines)
    text = f"{worst['error']} errors, {worst['warning']} warnings, {worst['ok']} checks passed"
    if worst["error"] or (strict and worst["warning"]):
        raise CommandError(text, REFUSED)
    if not as_lines:
        print(text)


def _show(finding: Finding, as_lines: bool) -> None:
    if as_lines:
        json_line(asdict(finding))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    line = Text(f"{finding.level:<8}", style=_STYLES[finding.level])
    line.append(one_line(f" {finding.where}: {finding.check}: {finding.text}"), style="default")
    if finding.todo:
        line.append(one_line(f" -> {finding.todo}"), style="default")
    console.print(line)


class Examination:
    """All that is to be examined, one after the other."""

    def __init__(self, bounds: Bounds, token_env: str, tls: Tls | None) -> None:
        self.bounds = bounds
        self.token_env = token_env
        self.tls = tls
        self.statuses: list[dict[str, Any]] = []

    def run(
        self, targets: list[str], config: Path | None, settings: list[str] | None
    ) -> Iterator[Finding]:
        from tandemq_server.doctor.live import compared

        if config is not None or settings:
            yield from self._configuration(config, settings)
        for target in targets:
            yield from self._target(target)
        if len(self.statuses) > 1:
            yield from compared(self.statuses)

    def _configuration(self, config: Path | None, settings: list[str] | None) -> Iterator[Finding]:
        from tandemq_server.doctor.configuration import ConfigExam

        exam = ConfigExam(config, assignments(settings or ()), os.environ)
        yield from exam
        if exam.settings is None:
            return
        if exam.settings.data_dir.exists():
            running = yield from self._directory(exam.settings.data_dir)
            if running and exam.settings.admin is not None:
                token_env = exam.settings.admin_token_env or self.token_env
                yield from self._live(exam.settings.admin, token_env)

    def _target(self, target: str) -> Iterator[Finding]:
        if Path(target).exists():
            yield from self._directory(Path(target))
            return
        try:
            split_address(target)
        except ValueError:
            if "/" not in target:
                raise CommandError(
                    f"{target} is neither a directory nor an address HOST:PORT",
                    USAGE,
                    "the port is the one of `admin`, 8081 in the examples",
                ) from None
            yield from self._directory(Path(target))
            return
        yield from self._live(target, self.token_env)

    def _directory(self, directory: Path) -> Generator[Finding, None, bool]:
        """The value returned: whether a node holds it."""
        from tandemq_server.doctor.directory import DirectoryExam

        exam = DirectoryExam(directory, self.bounds)
        yield from exam
        return exam.holder is not None

    def _live(self, address: str, token_env: str) -> Iterator[Finding]:
        from tandemq_server.doctor.live import LiveExam

        exam = LiveExam(client_of(address, token_env, self.tls), self.bounds)
        yield from exam
        if exam.status is not None:
            self.statuses.append(exam.status)
