"""What was cut, as an operator learns of it: by `rescue list`, `show` and `replay`, no more."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgpack
import typer

from tandemq_server.cli import files, rescue
from tandemq_server.cli.output import CommandError
from tandemq_server.storage.memory import MemoryDisk
from tests.simulation.sim_load import number_of
from tests.simulation.sim_tubes import SPACE15


class NotReadable(Exception):
    """A command said no where it must not. str() has its words."""


@dataclass(slots=True)
class Rescued:
    """Of all machines. put: (tube, task id, number) that may be put again; again: (tube, task id)
    of tasks that were finished in what was cut; hands: (tube, task id, call) of every change of
    hands in it, as `log dump --rescue` prints them.
    """

    put: dict[tuple[str, int, int], str] = field(default_factory=dict)
    by_number: set[tuple[str, int]] = field(default_factory=set)
    again: dict[tuple[str, int], str] = field(default_factory=dict)
    hands: set[tuple[str, int, str]] = field(default_factory=set)
    #: Tasks that came into being in it, by what the same prints of them.
    dumped: dict[tuple[str, int, int], str] = field(default_factory=dict)
    #: By machine the (first, last) LSNs that were cut and that only a saved state stands for: the
    #: log did not reach back to the fork.
    untold: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    def shows_put(self, tube: str, task_id: int | str | None, number: int) -> bool:
        if tube == SPACE15:
            return (tube, number) in self.by_number
        return task_id is not None and (tube, task_id, number) in self.put

    def shows_again(self, tube: str, task_id: int | str | None) -> bool:
        if tube == SPACE15:
            # Known: what was not put in it, a cut names by a number that no client of 1.5 was told.
            return any(name == tube for name, _ in self.again)
        return task_id is not None and (tube, task_id) in self.again

    def shows_take(self, tube: str, task_id: int | str | None) -> bool:
        if tube == SPACE15:
            return any((name, kind) == (tube, "take") for name, _, kind in self.hands)
        return task_id is not None and (tube, task_id, "take") in self.hands


def read_all(disks: dict[str, list[MemoryDisk]], tubes: tuple[str, ...]) -> Rescued:
    """By machine the disks it has had; tubes in the order of their numbers. Raises NotReadable."""
    found = Rescued()
    for name, of_machine in disks.items():
        for disk in of_machine:
            contents = disk.contents()
            if any(path.startswith("rescue/") for path in contents):
                with tempfile.TemporaryDirectory() as directory:
                    _unpack(contents, Path(directory))
                    _read(name, directory, found)
                    for path in contents:
                        if path.startswith("rescue/") and path.endswith(".wal"):
                            _dump(path, directory, tubes, found)
    return found


def _unpack(contents: dict[str, bytes], directory: Path) -> None:
    for path, data in contents.items():
        if path.startswith("rescue/") or path == "meta" or path.endswith(".wal"):
            (directory / path).parent.mkdir(exist_ok=True)
            (directory / path).write_bytes(data)


def _read(node: str, directory: str, found: Rescued) -> None:
    listed, strays = _run("rescue", "list", directory, "--json")
    if "has no note" in strays:
        raise NotReadable(f"{node}: {strays}")
    for cut in listed:
        name = cut["name"]
        rows, _ = _run("rescue", "show", directory, name, "--json")
        put = [row for row in rows if row["lsn"] is not None]
        again = [row for row in rows if row["what"] == "will run again"]
        undone = len(rows) - len(put) - len(again)
        shown = (len(put), len(again), undone)
        if shown != (cut["tasks"], cut["will_run_again"], cut["changed"]):
            raise NotReadable(f"{node}: {name} is listed with {cut}, shown are {rows}")
        [planned], _ = _run("rescue", "replay", directory, name, "--buried", "--unsure", "--json")
        # What is done is shown, and not put again.
        if planned["put"] + planned["done"] != len(put):
            raise NotReadable(f"{node}: of {len(put)} tasks of {name} are replayed: {planned}")
        found.files.append(f"{node}/{name}")
        if (untold := cut["last_lsn"] - cut["records"]) >= cut["first_lsn"]:
            found.untold.setdefault(node, []).append((cut["first_lsn"], untold))
        for row in put:
            payload = row["payload"]
            number = number_of(payload.get("payload") if isinstance(payload, dict) else payload)
            found.put[row["tube"], row["id"], number] = f"{node}/{name}"
            found.by_number.add((row["tube"], number))
        for row in again:
            found.again[row["tube"], row["id"]] = f"{node}/{name}"


def _dump(path: str, directory: str, tubes: tuple[str, ...], found: Rescued) -> None:
    for record in _run("log", "dump", directory, "--rescue", path, "--json")[0]:
        for op in record["ops"]:
            # The space of what is taken: tube, task, and more.
            if op[0] == "insert" and 1024 <= op[1] < 1024 + len(tubes):
                payload = op[2][-1]
                if isinstance(payload, str) and payload.startswith("0x"):
                    number = number_of(msgpack.unpackb(bytes.fromhex(payload[2:])))
                    found.dumped[tubes[op[1] - 1024], op[2][0], number] = path
            if op[1] == 514 and isinstance(op[2], list):
                # One owner, or those of a batch.
                for row in op[2] if isinstance(op[2][0], list) else [op[2]]:
                    if isinstance(row[0], int) and row[0] < len(tubes):
                        kind = record["kind"].removesuffix("_many")
                        found.hands.add((tubes[row[0]], row[1], kind))


@cache
def _command() -> Any:
    """The command as the operator has it, without those beside it; made once."""
    app = typer.Typer()
    app.callback()(lambda: None)
    rescue.add_to(app)
    files.add_to(app)
    return typer.main.get_command(app)


def _run(*words: str) -> tuple[list[dict[str, Any]], str]:
    """(lines of JSON, what stood on standard error) of one command."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            _command().main(list(words), standalone_mode=False)
    except CommandError as error:
        raise NotReadable(f"tandemq {' '.join(words)}: {error}") from error
    return [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue()
