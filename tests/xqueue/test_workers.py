"""Workers and givers of ids inside a real node; tubes by configuration, command and call."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import tarantool
from tarantool.error import DatabaseError

from tandemq_server.config import Settings
from tandemq_server.node.loop.plugins import PluginError, functions
from tests.cluster.cluster_nodes import TANDEMQ, until
from tests.xqueue.server_x import XServer, declared
from tests.xqueue.xqueue_bench import FIELDS, FORMAT


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[XServer]:
    started = XServer(tmp_path_factory.mktemp("workers"))
    started.start()
    yield started
    assert started.stop() == 0, started.log.read_text()


@pytest.fixture
def connection(server: XServer) -> Iterator[tarantool.Connection]:
    made = tarantool.Connection("127.0.0.1", server.port)
    yield made
    made.close()


def call(connection: tarantool.Connection, name: str, *args: Any) -> Any:
    try:
        data = list(connection.call(name, list(args)).data)
    except DatabaseError as error:
        return f"! {error.args[1]}"
    return data[0] if data else None


def put(connection: tarantool.Connection, tube: str, payload: str, *opts: Any) -> Any:
    task = {"priority": 0, "tube": "a", "payload": payload}
    return call(connection, f"box.space.{tube}:put", task, *opts)


def counts(connection: tarantool.Connection, tube: str) -> dict[str, int]:
    found: dict[str, int] = call(connection, f"box.space.{tube}:stats")["counts"]
    return found


def test_a_worker_acknowledges_what_it_returned_from(server: XServer, connection: Any) -> None:
    tasks = [put(connection, "jobs", f"job {number}") for number in range(20)]
    assert [task["id"] for task in tasks] == list(range(tasks[0]["id"], tasks[0]["id"] + 20))
    assert tasks[0]["id"] >= 1000, "ids are those of the registered function"
    until(lambda: not any(counts(connection, "jobs").values()))
    names = [name for name, _ in server.seen() if name.startswith("job ")]
    assert sorted(names) == sorted(f"job {number}" for number in range(20))


def test_whoever_waits_for_a_task_of_a_worker_is_told(connection: Any) -> None:
    data = connection.call(
        "box.space.jobs:put", [{"priority": 0, "tube": "a", "payload": "told"}, {"wait": 20}]
    ).data
    assert (data[0]["payload"], data[1]) == ("told", True)


@pytest.mark.parametrize("tube", ["jobs", "plain"])
def test_9_a_failing_worker_backs_off(server: XServer, connection: Any, tube: str) -> None:
    before = len(server.seen())
    task = put(connection, tube, "bad")
    until(lambda: len(server.seen()) >= before + 3, 30)
    times = [moment for name, moment in server.seen()[before:] if name == "bad"]
    assert times[1] - times[0] >= 0.49
    assert times[2] - times[1] >= 0.99
    assert "no good" in server.log.read_text()
    if tube == "jobs":
        put(connection, tube, "not held up")
        until(lambda: "not held up" in [name for name, _ in server.seen()])
    assert call(connection, f"box.space.{tube}:kill", [task["id"]])["status"] == "B"


def test_a_worker_may_end_its_task_itself(server: XServer, connection: Any) -> None:
    bury, slow, ack = (put(connection, "itself", name) for name in ("bury", "slow", "ack"))
    until(lambda: {"slow", "ack"} <= {name for name, _ in server.seen()})
    until(lambda: counts(connection, "itself")["T"] == 0)
    (left,) = call(connection, "box.space.itself:select")
    assert (left[0], left[1], left[5]) == (bury["id"], "B", "buried by itself")
    transitions = call(connection, "box.space.itself:stats")["transition"]
    assert transitions["T-B"] == 1
    assert transitions["T-X"] == 2
    assert slow["id"] != ack["id"]


def test_a_declaration_by_call_and_the_end_of_its_workers(server: XServer, connection: Any) -> None:
    opts = declared({"id": "auto_increment"}, worker="my_jobs:wait_for_it", workers=2)
    assert call(connection, "xqueue.upgrade", "later", opts) is None
    put(connection, "later", "awaited")
    until(lambda: "awaited" in [name for name, _ in server.seen()])
    until(lambda: not any(counts(connection, "later").values()))
    assert call(connection, "queue.tube.later:drop") is True
    assert call(connection, "xqueue.upgrade", "later", declared({"id": "time64"})) is None
    put(connection, "later", "stays")
    assert counts(connection, "later")["R"] == 1
    opts["worker"] = "os:abort"
    text = "! os:abort is not one of `functions` of this node's configuration"
    assert call(connection, "xqueue.upgrade", "no", opts) == text
    opts = declared({"id": "os:getpid"})
    assert call(connection, "queue.create_tube", "no", "xqueue", opts).startswith("! os:getpid is")


def test_a_declaration_by_command_survives_a_restart(server: XServer) -> None:
    flags = {"format": FORMAT, "fields": FIELDS, "features": {"id": "time64", "ttr": 60}}
    words = [
        part for key, value in flags.items() for part in ("--option", f"{key}={json.dumps(value)}")
    ]
    command = [TANDEMQ, "create", "made", "xqueue", *words, "--server", f"127.0.0.1:{server.port}"]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"made: xqueue\n"
    assert server.stop() == 0
    server.start()
    connection = tarantool.Connection("127.0.0.1", server.port)
    task = put(connection, "made", "x")
    assert call(connection, "box.space.made:take", 0)["id"] == task["id"]
    assert call(connection, "box.space.made:ack", task["id"])["status"] == "T"
    put(connection, "jobs", "after the restart")
    until(lambda: "after the restart" in [name for name, _ in server.seen()])
    connection.close()


def test_functions_are_checked_at_the_start() -> None:
    for reference, text in (("no_such_module:f", "cannot load"), ("sys:path", "is not a function")):
        with pytest.raises(PluginError, match=text):
            functions(Settings(functions=(reference,)))
    tubes = [{"name": "q", "type": "xqueue", "options": {"worker": "os.path:nothing"}}]
    with pytest.raises(PluginError, match="tubes: q: cannot load"):
        functions(Settings(tubes=tubes))
    assert functions(Settings(functions=("os:getpid",)))("os:getpid")() > 0
