"""The `tarantool` connector of PyPI, as a blocking Python application uses it.

It has one request in flight a connection, so waiting is shown with a thread each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tarantool
from tarantool.error import DatabaseError, NetworkError

from tests.compat.compat_client import refusal
from tests.compat.compat_server import Server

Connect = Callable[..., tarantool.Connection]


@pytest.fixture
def dial() -> Iterator[Connect]:
    """`dial(server, **options)`: a connection with the connector's own defaults."""
    opened: list[tarantool.Connection] = []

    def open_one(server: Server, **options: Any) -> tarantool.Connection:
        opened.append(tarantool.Connection("127.0.0.1", server.port, **options))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def connection(server: Server, dial: Connect) -> tarantool.Connection:
    return dial(server)


def create(
    connection: tarantool.Connection, name: str, kind: str = "fifottl"
) -> Callable[..., Any]:
    """A fresh tube; calling the result makes a call on it and gives the answer's values."""
    if connection.call("queue.tube", name).data == [True]:
        connection.call(f"queue.tube.{name}:drop")
    connection.call("queue.create_tube", name, kind)
    return lambda method, *args: connection.call(f"queue.tube.{name}:{method}", list(args)).data


def test_every_call(connection: tarantool.Connection) -> None:
    tube = create(connection, "python_calls")
    assert tube("put", {"a": [1, None]}, {"ttl": 60, "pri": 1}) == [[0, "r", {"a": [1, None]}]]
    assert tube("put", "data") == [[1, "r", "data"]]
    assert tube("take", 0) == [[1, "t", "data"]]
    assert tube("touch", 1, 1.5) == [[1, "t", "data"]]
    assert tube("release", 1, {"delay": 0.02}) == [[1, "~", "data"]]
    assert tube("peek", 1)[0][0] == 1
    assert tube("take")[0][0] == 0
    assert tube("take", 5) == [[1, "t", "data"]], "waits until the delay is over"
    assert tube("ack", 1) == [[1, "-", "data"]]
    assert tube("bury", 0) == [[0, "!", {"a": [1, None]}]]
    assert tube("kick", 1) == [1]
    assert tube("delete", 0) == [[0, "-", {"a": [1, None]}]]
    assert tube("take", 0.01) == []
    (found,) = connection.call("queue.statistics", "python_calls").data
    assert found["calls"]["put"] == 2
    assert found["tasks"]["done"] == 2
    assert connection.call("queue.state").data == ["RUNNING"]
    (altered,) = connection.call("queue.alter_tube", "python_calls", {"capacity": 7}).data
    assert altered["opts"]["capacity"] == 7
    assert tube("truncate") == []
    assert tube("drop") == [True]


def test_a_waiting_take_is_answered_by_another_connection(server: Server, dial: Connect) -> None:
    consumer, producer = dial(server), dial(server)
    tube = create(producer, "python_wait", "fifo")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(consumer.call, "queue.tube.python_wait:take", 5)
        tube("put", "wanted")
        assert waiting.result(10).data == [[0, "t", "wanted"]]


def test_identify_on_two_connections(server: Server, dial: Connect) -> None:
    """The connector must be told not to decode strings: the UUID is 16 bytes."""
    first, second = dial(server, encoding=None), dial(server, encoding=None)
    uuid = first.call("queue.identify").data[0]
    assert type(uuid) is bytes
    assert len(uuid) == 16
    assert second.call("queue.identify", uuid).data == [uuid]
    tube = create(dial(server), "python_session", "fifo")
    tube("put", "x")
    assert first.call("queue.tube.python_session:take", 0).data == [[0, b"t", b"x"]]
    assert second.call("queue.tube.python_session:ack", 0).data == [[0, b"-", b"x"]]


def test_errors(connection: tarantool.Connection) -> None:
    with pytest.raises(DatabaseError) as caught:
        connection.call("queue.tube.python_nothing:take")
    assert caught.value.code == 33
    assert caught.value.extra_info.errcode == 33
    tube = create(connection, "python_errors")
    with pytest.raises(DatabaseError) as caught:
        tube("peek", 3)
    assert (caught.value.code, caught.value.message) == (32, "Task 3 not found")
    assert connection.ping(notime=True) == "Success"


def test_schema_by_name(connection: tarantool.Connection) -> None:
    tube = create(connection, "python_schema", "fifo")
    tube("put", "x")
    assert connection.select("python_schema", 0).data == [[0, "r", "x"]]
    ((name, *_),) = connection.select("_queue", "python_schema", index="tube").data
    assert name == "python_schema"


def test_eval(connection: tarantool.Connection) -> None:
    assert connection.eval("return queue._VERSION").data == ["1.5.0"]
    assert connection.eval("return box.info.status").data == ["running"]


def test_pool(server: Server) -> None:
    """The connector's pool asks each node what it is."""
    pool = tarantool.ConnectionPool([{"host": "127.0.0.1", "port": server.port}])
    try:
        found = pool.call("queue.state", mode=tarantool.Mode.RW)
        assert found.data == ["RUNNING"]
    finally:
        pool.close()


@pytest.mark.parametrize("fetch_schema", [True, False])
def test_login(guarded: Server, dial: Connect, fetch_schema: bool) -> None:
    worker = dial(guarded, user="worker", password="worker's secret", fetch_schema=fetch_schema)
    assert worker.call("box.session.user").data == ["worker"]
    assert worker.call("queue.state").data == ["RUNNING"]


@pytest.mark.parametrize(("user", "password"), [("worker", "wrong"), ("nobody", "x")])
def test_login_refused(guarded: Server, user: str, password: str) -> None:
    with pytest.raises((DatabaseError, NetworkError)) as caught:
        tarantool.Connection("127.0.0.1", guarded.port, user=user, password=password)
    assert "User not found or supplied credentials are invalid" in str(caught.value)


def test_guest_logs_in_with_no_password(guarded: Server, dial: Connect) -> None:
    """What cartridge-driver sends for who names no user: the scramble of an empty password."""
    guest = dial(guarded, user="guest", password="", fetch_schema=False)
    assert guest.call("box.session.user").data == ["guest"]
    with pytest.raises((DatabaseError, NetworkError)) as caught:
        tarantool.Connection("127.0.0.1", guarded.port, user="guest", password="wrong")
    assert "User not found or supplied credentials are invalid" in str(caught.value)


def test_guest_without_rights(guarded: Server, connect: Callable[..., Any]) -> None:
    conn = connect(guarded, "tarantool")
    error = refusal(lambda: conn.call("queue.tube.jobs:put", "x"))
    assert error.code == 42
    assert error.text == (
        "Execute access to function 'queue.tube.jobs:put' is denied for user 'guest'"
    )
