"""Dialects of listeners and users over a socket: which one counts, what a wrong pick says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import tarantool
import yaml
from tarantool.error import DatabaseError

from tests.compat.compat_server import Server, free_port

OLD_TASK = (0, "t", 0, 0, 0, 0, "x")


def user(name: str, grant: str, **more: Any) -> dict[str, Any]:
    secret = hashlib.sha1(hashlib.sha1(name.encode()).digest()).hexdigest()
    return {"name": name, "password_hash": {"chap_sha1": secret}, "grants": [grant], **more}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """A server whose ports are (tube, queue15) and whose users have a dialect or none."""
    directory = tmp_path_factory.mktemp("dialects")
    old = free_port()
    config = {
        "listen_queue15": f"127.0.0.1:{old}",
        "tubes": [{"name": "space0", "type": "queue15"}, {"name": "jobs", "type": "fifo"}],
        "users": [
            user("old", "*", dialect="queue15"),
            user("new", "*", dialect="tube"),
            user("any", "*"),
            user("narrow", "queue.*"),
        ],
    }
    (directory / "node.yaml").write_text(yaml.safe_dump(config))
    running = Server(directory, flags=["--config", str(directory / "node.yaml")]).start()
    yield running.port, old
    assert running.stop() == 0


def dial(port: int, name: str | None) -> tarantool.Connection:
    return tarantool.Connection("127.0.0.1", port, user=name, password=name)


PICKS = [
    # user, listener, the dialect it gets
    ("old", "tube", "queue15"),
    ("old", "queue15", "queue15"),
    ("new", "tube", "tube"),
    ("new", "queue15", "tube"),
    ("any", "tube", "tube"),
    ("any", "queue15", "queue15"),
    (None, "tube", "tube"),
    (None, "queue15", "queue15"),
]


@pytest.mark.parametrize(("name", "listener", "dialect"), PICKS)
def test_who_speaks_what(
    server: tuple[int, int], name: str | None, listener: str, dialect: str
) -> None:
    port = server[("tube", "queue15").index(listener)]
    with closing(dial(port, name)) as connection:
        # By its prefix always, whatever is spoken; the tubes of the module too.
        assert connection.call("queue15.put", OLD_TASK).data[0][2] == "ready"
        assert connection.call("queue.tube.jobs:put", ["y"]).data[0][1] == "r"
        said = connection.call("queue.statistics", []).data[0]
        if dialect == "queue15":
            assert connection.call("queue.put", OLD_TASK).data[0][2] == "ready"
            assert said[0].startswith("space0.t.")
        else:
            assert said["jobs"]["calls"]["put"] >= 1
            with pytest.raises(DatabaseError) as caught:
                connection.call("queue.put", OLD_TASK)
            code, text = caught.value.args[:2]
            assert code == 33
            assert "call queue15.put, or set dialect: queue15 for its user or listener" in text
            assert "tube" in text


def test_rights_name_a_call_fully_in_either_dialect(server: tuple[int, int]) -> None:
    for port, text in ((server[0], "dialect: queue15"), (server[1], "'queue15.put' is denied")):
        with (
            closing(dial(port, "narrow")) as connection,
            pytest.raises(DatabaseError, match=text),
        ):
            connection.call("queue.put", OLD_TASK)
