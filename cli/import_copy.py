"""The copying behind `tandemq import`: rows of a Tarantool, page by page, into a running node.

Here: what is copied, in which order, and what is said of it. Must not be here: flags
(cli/importing.py), what there is to copy (cli/import_sources.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tandemq_server.cli import import_sources as sources
from tandemq_server.cli.import_sources import ImportSource
from tandemq_server.cli.output import (
    REFUSED,
    UNREACHABLE,
    USAGE,
    CommandError,
    json_line,
    note,
    table,
)
from tandemq_server.cli.raw_client import ALL, RawConnection
from tandemq_server.cli.remote import Remote
from tandemq_server.wire.client import ClientError


def run(
    source: str,
    there: Remote,
    here: Remote,
    wanted: tuple[list[str], list[str], list[str]],
    page: int,
    dry_run: bool,
    as_lines: bool,
) -> None:
    """Copy what is `wanted` (tubes, spaces of 1.5, of xqueue) and report. Raises CommandError.

    `source` is how the other server was named: a run that goes on knows it by that.
    """
    tubes, spaces, records = wanted
    with _opened(there) as old:
        found = [
            *sources.tubes(old, tubes),
            *(sources.space15(old, text) for text in spaces),
        ]
        found += [sources.records(old, text) for text in records]
        if tubes:
            missing = sorted(set(tubes) - {one.tube for one in found})
            if missing:
                raise CommandError(f"no such tube there: {', '.join(missing)}", REFUSED)
        if dry_run:
            for one in found:
                one.copied = sum(map(len, old.pages(one.space, None, page, one.key_at)))
        else:
            with _opened(here) as new:
                for one in found:
                    _copy(old, new, one, source, page)
    _report(found, as_lines, dry_run)


@contextmanager
def _opened(remote: Remote) -> Iterator[RawConnection]:
    """A connection whose failures end the command in one line."""
    where = f"{remote.host}:{remote.port}"
    try:
        with RawConnection(
            remote.host, remote.port, remote.user, remote.password, remote.tls
        ) as connection:
            yield connection
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CommandError(f"{where}: {reason}", UNREACHABLE, "is it up?") from error
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error
    except ClientError as error:
        raise CommandError(f"{where}: {error}", REFUSED) from error


def _copy(
    old: RawConnection, new: RawConnection, one: ImportSource, source: str, page: int
) -> None:
    """Copy what is not here yet, then count: both sides must have the same number."""
    if one.kind == sources.RECORDS:
        sources.declare(new, one)
    else:
        opts = {**one.options, "if_not_exists": True}
        new.call("queue.create_tube", one.tube, one.kind, opts)
    known = new.call("tandem.import_state", one.tube) or {}
    one.total = known.get("count", 0)
    origin = f"{source}/{one.space}"
    for rows in old.pages(one.space, known.get("last"), page, one.key_at):
        one.total = new.call("tandem.import", one.tube, origin, raw=rows)
        one.copied += len(rows)
        note(f"{one.tube}: {one.total} tasks")
    beyond = old.select(one.space, [], iterator=ALL, offset=max(one.total - 1, 0), limit=2)
    if len(beyond) != min(one.total, 1):
        raise CommandError(
            f"{one.tube}: {one.total} tasks here, another number there",
            REFUSED,
            "its tasks changed meanwhile: stop its workers, drop the tube here, import again",
        )


def _report(found: list[ImportSource], as_lines: bool, dry_run: bool) -> None:
    columns = ("tube", "type", "tasks", "copied")
    rows = [(o.tube, o.kind, o.copied if dry_run else o.total, 0 if dry_run else o.copied)
            for o in found]  # fmt: skip
    if as_lines:
        for row in rows:
            json_line(dict(zip(columns, row, strict=True)))
    else:
        table(columns, rows, right=("tasks", "copied"))
