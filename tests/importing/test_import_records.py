"""`tandemq import` of xqueue: records of the user's own layout, by their declaration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tarantool
import yaml

from tandemq_server.cli import import_sources
from tandemq_server.cli.output import USAGE, CommandError
from tandemq_server.cli.raw_client import RawConnection, RawError
from tests.compat.compat_server import Server
from tests.importing.import_bench import TASKS, all_rows, counts, lsn, run, unpack

PAGE = ["--page", str(max(250, TASKS // 100))]
#: Position of key, status and runat in each source.
LAYOUTS = {"jobs": (0, 1, 2), "mails": (1, 2, 3), "plain": (0, 1, None)}
JOBS = {
    "fields": {"status": "status", "runat": "runat", "priority": "priority", "tube": "tube"},
    "features": {"id": "time64", "delayed": True, "zombie": 60, "ttl": True, "ttr": 30},
    "tube_stats": ["tube1"],
}
MAILS = {
    "format": [["to", "map"], ["key", "string"], ["status", "string"], ["runat", "unsigned"]],
    "indexes": [{"parts": ["key"]}, {"parts": ["status", "key"]}, {"parts": ["runat"]}],
    "fields": {"status": "status", "runat": "runat"},
    "features": {"id": "uuid", "delayed": True, "ttl": True, "keep": True},
}
PLAIN = {"fields": {"status": "state"}, "features": {"id": "auto_increment"}}


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    for name, declaration in (("jobs", JOBS), ("plain", PLAIN)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(declaration))
    files = [f"jobs={tmp_path}/jobs.yaml", "mails", f"plain={tmp_path}/plain.yaml"]
    # One of the queue module's tubes; else it would be all of them.
    return [part for one in files for part in ("--xqueue", one)] + [*PAGE, "--tube", "old_fifo"]


def into(server: Server) -> RawConnection:
    return RawConnection("127.0.0.1", server.port, None, None)


def only_records(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    return {name: count for name, count in counts(rows).items() if name in LAYOUTS}


def test_every_record_is_copied_once(server: Server, source: str, arguments: list[str]) -> None:
    code, rows, notes = run(server, source, *arguments, "--dry-run")
    assert (code, only_records(rows)) == (0, dict.fromkeys(LAYOUTS, (TASKS, 0))), notes
    assert lsn(server) <= 2, "a dry run changes nothing"
    with into(server) as new:
        new.call("xqueue.upgrade", "mails", MAILS)

    code, rows, notes = run(server, source, *arguments)
    assert (code, only_records(rows)) == (0, dict.fromkeys(LAYOUTS, (TASKS, TASKS))), notes
    after = lsn(server)
    code, rows, _ = run(server, source, *arguments)
    assert (code, only_records(rows)) == (0, dict.fromkeys(LAYOUTS, (TASKS, 0)))
    assert lsn(server) == after, "a second run changes nothing"

    server.restart(hard=True)
    same_records(server, source)
    executed(server)
    code, rows, _ = run(server, source, *arguments)
    assert (code, only_records(rows)) == (0, dict.fromkeys(LAYOUTS, (TASKS, 0)))


def same_records(server: Server, source: str) -> None:
    host, port = source.split(":")
    with RawConnection(host, int(port), None, None) as old, into(server) as new:
        for name, (key, status, runat) in LAYOUTS.items():
            there, here = (
                {row[key]: row for row in map(unpack, all_rows(side, name))} for side in (old, new)
            )
            assert there.keys() == here.keys()
            for ident, row in there.items():
                expected = row + [None] * (len(here[ident]) - len(row))
                letter = row[status]
                expected[status] = "R" if letter == "T" else letter
                if runat is not None and letter not in "RWZ":
                    expected[runat] = 0
                assert here[ident] == expected


def executed(server: Server) -> None:
    """What was taken there is ready here, in the order of the declaration."""
    ready = -(-TASKS // 6) + -(-(TASKS - 1) // 6)
    connection = tarantool.Connection("127.0.0.1", server.port)
    for name in LAYOUTS:
        stats = connection.call(f"box.space.{name}:stats").data[0]
        assert (stats["counts"]["R"], stats["counts"]["T"]) == (ready, 0)
    task = connection.call("box.space.jobs:take", [0, {"tube": "tube1"}]).data[0]
    assert (task["priority"], task["tube"], task["status"]) == (-2, "tube1", "T")
    assert connection.call("box.space.jobs:ack", [task]).data[0]["status"] == "Z"
    # A text key leaves no number behind when its record is gone.
    assert connection.call("box.space.mails:kill", ["k00000000"]).data[0]["key"] == "k00000000"
    new = connection.call("box.space.plain:put", [{"note": "new"}]).data[0]
    assert new["id"] == TASKS + 1
    connection.close()


def test_an_interrupted_import_of_records_goes_on(
    server: Server, source: str, arguments: list[str]
) -> None:
    host, port = source.split(":")
    with RawConnection(host, int(port), None, None) as old, into(server) as new:
        new.call("xqueue.upgrade", "mails", MAILS)
        space = int(unpack(old.select(281, ["mails"], index=2)[0])[0])
        rows = old.select(space, [], iterator=2, limit=150)
        assert new.call("tandem.import", "mails", f"{source}/{space}", raw=rows) == 150
        with pytest.raises(RawError, match="is not behind k00000149, the last one imported"):
            new.call("tandem.import", "mails", f"{source}/{space}", raw=rows[:1])
    server.restart(hard=True)
    code, said, _ = run(server, source, *arguments)
    assert (code, only_records(said)["mails"]) == (0, (TASKS, TASKS - 150))
    connection = tarantool.Connection("127.0.0.1", server.port)
    connection.call("box.space.mails:drop")
    connection.close()
    code, _, text = run(server, source, "--xqueue", "mails", "--tube", "old_fifo")
    assert code == 1
    assert "no xqueue mails is declared here" in text
    with into(server) as new:
        new.call("xqueue.upgrade", "mails", MAILS)
        assert new.call("tandem.import_state", "mails") is None, "another tube of that name"


def test_what_is_refused(server: Server, source: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    host, port = source.split(":")
    with RawConnection(host, int(port), None, None) as old:
        for text in ("fields: [", "features: {}", "fields: {status: status}\nfield: {}", "- 1"):
            bad.write_text(text)
            with pytest.raises(CommandError) as caught:
                import_sources.records(old, f"jobs={bad}")
            assert caught.value.code == USAGE
        with pytest.raises(CommandError, match="No such file"):
            import_sources.records(old, f"jobs={tmp_path}/nobody")
        for space, said in (
            ("pairs", "its primary key has more than one part"),
            ("formless", "has no format there"),
            ("nobody", "no space nobody there"),
        ):
            with pytest.raises(CommandError, match=said):
                import_sources.records(old, space)
    with into(server) as new:
        other = {**MAILS, "format": [*MAILS["format"], ["more", "any", True]]}
        new.call("xqueue.upgrade", "mails", other)
        bad.write_text("fields: {status: status}")
    code, _, notes = run(server, source, "--xqueue", "mails", "--tube", "old_fifo")
    assert code == 1
    assert "xqueue mails has another format or key there" in notes
    code, _, notes = run(server, source, "--xqueue", f"mails={bad}", "--tube", "old_fifo")
    assert code == 1
    assert "is declared with other options" in notes


BAD = [
    (["m", "k", "R", 0], "expected map"),
    ([{}, 1, "R", 0], "expected string"),
    ([{}, "k", "X", 0], "unknown status X"),
    ([{}, "k", "RT", 0], "unknown status RT"),
    ([{}, "k", None, 0], "unknown status None"),
    ([{}, "k", "R", "soon"], "runat is not a number of seconds"),
    ([{}, "k", "R", 1000], "Queue contains monotonic runat"),
    ([{}, "k", "R", 0, 1], "has more fields than the format"),
    ([], "expected string"),
    ({"to": {}}, "expected an array"),
    ([{}, "a", "R", 0], "Task a is not behind a"),
]


def test_bad_records_change_nothing(server: Server) -> None:
    with into(server) as new:
        new.call("xqueue.upgrade", "mails", MAILS)
        for row, text in BAD:
            with pytest.raises(RawError, match=text):
                new.call("tandem.import", "mails", "there", [{}, "a", "R", 0], row)
            assert new.call("tandem.import_state", "mails") is None
            assert new.call("box.space.mails:len") == 0
        new.call("box.space.mails:put", {"to": {}})
        with pytest.raises(RawError, match="has had tasks of its own"):
            new.call("tandem.import", "mails", "there", [{}, "a", "R", 0])


#: status and runat there, features of the tube: status and runat here.
TIMERS = [
    ("R", 0, {}, "R", 0),
    ("R", 4e9, {"ttl": True}, "R", 4e9),
    ("R", 4e9, {"ttr": True, "ttl": False}, "R", 0),
    ("T", 4e9, {"ttr": 9, "ttl": True}, "R", 0),
    ("W", 4e9 + 0.5, {"delayed": True}, "W", 4e9 + 0.5),
    ("B", 4e9, {"ttl": 5}, "B", 0),
    ("Z", 4e9, {"zombie": 5}, "Z", 4e9),
    ("Z", 0, {"zombie": True}, "Z", 0),
    ("D", 4e9, {"keep": True}, "D", 0),
    ("R", None, {}, "R", 0),
]


@pytest.mark.parametrize(("status", "runat", "features", "here", "at"), TIMERS)
def test_a_timer_means_what_status_and_features_say(
    status: str, runat: float | None, features: dict[str, Any], here: str, at: float
) -> None:
    from tandemq_server.engine import importing
    from tests.xqueue.xqueue_bench import Calls

    calls = Calls({"id": "required", **features})
    names = [field[0] for field in calls.tube.opts["format"]]
    fields = {"id": 1, "status": status, "runat": runat, "priority": 0, "tube": "t"}
    row = [fields.get(name) for name in names]
    bench = calls.bench
    assert bench.call(importing.take_in, bench.engine, calls.tube, "there", [(row, b"")]) == 1
    found = calls.tube.records.layout.table(calls.tube.space.rows[1])
    assert (found["status"], found["runat"]) == (here, at)
