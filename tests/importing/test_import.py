"""`tandemq import` from a real Tarantool that serves spaces of every layout.

The program is Debian's; without it these tests say so, and fail under CI=true.
"""

from __future__ import annotations

import socket
import subprocess
from typing import Any

import pytest
import tarantool

from tandemq_server.cli import import_sources
from tandemq_server.cli.output import REFUSED, USAGE, CommandError
from tandemq_server.cli.raw_client import RawConnection, RawError
from tests.compat.compat_server import Server
from tests.engine.engine_bench import Bench
from tests.importing.import_bench import (
    COMMAND,
    TASKS,
    all_rows,
    counts,
    lsn,
    run,
    space_id,
    unpack,
)
from tests.queue15.queue15_bench import make

KINDS = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")
IMPORT = ["--space15", "legacy:0", "--page", str(max(250, TASKS // 100))]
EVERYTHING = {*(f"old_{kind}" for kind in KINDS), "space0"}


def test_every_layout_is_copied_once(server: Server, source: str) -> None:
    code, rows, notes = run(server, source, *IMPORT, "--dry-run")
    assert code == 0
    assert counts(rows) == dict.fromkeys(EVERYTHING, (TASKS, 0))
    assert "foreign is left out" in notes
    assert "gone is left out" in notes
    assert lsn(server) <= 2, "a dry run changes nothing"

    code, rows, notes = run(server, source, *IMPORT)
    assert (code, counts(rows)) == (0, dict.fromkeys(EVERYTHING, (TASKS, TASKS))), notes
    after = lsn(server)
    code, rows, _ = run(server, source, *IMPORT)
    assert (code, counts(rows)) == (0, dict.fromkeys(EVERYTHING, (TASKS, 0)))
    assert lsn(server) == after, "a second run changes nothing"

    server.restart(hard=True)
    same_tasks(server, source)
    connection = tarantool.Connection("127.0.0.1", server.port)
    for kind in KINDS:
        task = connection.call(f"queue.tube.old_{kind}:take", [0]).data[0]
        assert connection.call(f"queue.tube.old_{kind}:ack", [task[0]]).data[0][1] == "-"
    connection.close()
    code, rows, _ = run(server, source, *IMPORT)
    assert (code, counts(rows)) == (0, dict.fromkeys(EVERYTHING, (TASKS, 0))), "nothing comes back"


def same_tasks(server: Server, source: str) -> None:
    """Every row, compared byte by byte where the layouts are the same."""
    host, port = source.split(":")
    with (
        RawConnection(host, int(port), None, None) as old,
        RawConnection("127.0.0.1", server.port, None, None) as new,
    ):
        for kind in KINDS:
            there, here = (
                {row[0]: row for row in map(unpack, all_rows(side, f"old_{kind}"))}
                for side in (old, new)
            )
            assert there.keys() == here.keys()
            for key, row in there.items():
                expected = list(row)
                expected[1] = "r" if row[1] == "t" else row[1]
                if row[1] == "t" and len(row) > 4:
                    expected[2] = row[6] + row[3]
                assert here[key] == expected
        names = {"r": "ready", "d": "delayed", "t": "ready", "b": "buried", "*": "done"}
        for number in range(0, TASKS, 37):
            ident = f"{number:032x}"
            row = unpack(old.select(space_id(old, "legacy"), [ident])[0])
            task = new.call("queue15.peek", 0, ident)
            assert task == [ident, row[1], names[row[2]], *row[12:]]
            meta = new.call("queue15.meta", 0, ident)
            shown = [int(meta[4]), int(meta[5]), meta[7], meta[8] * 1_000_000, meta[9] * 1_000_000]
            assert shown == [row[4], row[5], *row[7:10]]
            assert meta[10:12] == row[10:12]


def test_an_import_killed_in_the_middle_goes_on(server: Server, source: str) -> None:
    into = ["--server", f"127.0.0.1:{server.port}", "--tube", "old_fifottl"]
    process = subprocess.Popen(
        [COMMAND, "import", "--from", source, *into, "--page", str(max(1, TASKS // 400))],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    with process.stderr:
        assert "old_fifottl: " in process.stderr.readline()
        process.kill()
        process.wait(10)
    server.restart(hard=True)
    code, rows, _ = run(server, source, "--tube", "old_fifottl", "--page", "200")
    (tasks, copied) = counts(rows)["old_fifottl"]
    assert (code, tasks) == (0, TASKS)
    assert 0 < copied < TASKS
    with RawConnection("127.0.0.1", server.port, None, None) as new:
        assert new.call("queue.statistics", "old_fifottl")["tasks"]["total"] == TASKS


def test_what_is_refused(server: Server, source: str) -> None:
    connection = tarantool.Connection("127.0.0.1", server.port)
    connection.call("queue.create_tube", ["old_fifo", "fifo"])
    connection.call("queue.tube.old_fifo:put", ["mine"])
    code, _, text = run(server, source, "--tube", "old_fifo")
    assert code == 1
    assert "has had tasks of its own" in text
    assert connection.call("queue.statistics", ["old_fifo"]).data[0]["tasks"]["total"] == 1
    connection.close()
    assert run(server, source, "--tube", "nobody")[0] == 1
    host, port = source.split(":")
    with RawConnection(host, int(port), None, None) as old:
        for text, exit_code in (("legacy", USAGE), ("legacy:x", USAGE), ("nobody:1", REFUSED)):
            with pytest.raises(CommandError) as caught:
                import_sources.space15(old, text)
            assert caught.value.code == exit_code
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert run(server, f"127.0.0.1:{nobody.getsockname()[1]}")[0] == 3
    code, _, text = run(server, source, "--tube", "old_utube", "--space15", "old_fifo:3")
    assert code == 1
    assert "not of the tube's layout" in text


BAD = [
    ([1, "r"], "fifottl", "not of the tube's layout"),
    ([1, "x", 1, 1, 1, 1, 1, "d"], "fifottl", "unknown status x"),
    ([-1, "r", "d"], "fifo", "task_id is not an unsigned integer"),
    (["a" * 32, "t", "r", 1, 300, 1, 0, 1, 1, 1, 0, 0], "queue15", "priority is above 255"),
    (["a" * 32, "t", "?", 1, 1, 1, 0, 1, 1, 1, 0, 0], "queue15", "a status of r d t b *"),
    (["a" * 32, "t", "r", "later", 1, 1, 0, 1, 1, 1, 0, 0], "queue15", "field 3 is not a number"),
]


def test_bad_rows_change_nothing(server: Server) -> None:
    good = {"fifo": [0, "r", "d"], "fifottl": [0, "r", 9, 9, 9, 0, 0, "d"]}
    with RawConnection("127.0.0.1", server.port, None, None) as new:
        for number, (row, kind, text) in enumerate(BAD):
            new.call("queue.create_tube", f"t{number}", kind)
            before = [good[kind]] if kind in good else []
            with pytest.raises(RawError) as caught:
                new.call("tandem.import", f"t{number}", "there", *before, row)
            assert text in str(caught.value)
            assert new.call("tandem.import_state", f"t{number}") is None
            assert new.call("queue.statistics", f"t{number}")["tasks"]["total"] == 0


def test_bytes_as_1_5_stored_them() -> None:
    """Numbers are little-endian bytes there; a replica agrees with what came of them."""
    from tandemq_server.engine import importing

    calls = make()
    bench: Bench = calls.bench
    moment = bench.engine.now.to_bytes(8, "little")
    life = (10**8).to_bytes(8, "little")
    fields: list[Any] = [
        "b" * 32, "t", "b", moment, b"\x7f", b"\x62", bytes(4), moment, life, life, bytes(8),
        bytes(8),
    ]  # fmt: skip
    done = bench.call(
        importing.take_in, bench.engine, calls.tube, "there", [(fields, b"\x91\xa1x")]
    )
    assert done == 1
    assert calls("peek", "b" * 32) == ["b" * 32, "t", "buried", "x"]
    assert calls("meta", "b" * 32)[4:10] == ["127", "98", 0, bench.engine.now, 100, 100]
