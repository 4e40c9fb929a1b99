"""TLS and logins on a real server process: chap-sha1, pap-sha256, rights, grants, no plain text."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
import tarantool
import trustme

from demo.node_process import NodeProcess

# The connector leaves its socket open when a login fails.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PASSWORD = "correct horse battery staple"
CONFIG = """
listen: 127.0.0.1:0
data_dir: {data}
guest: none
wal: {{mode: write}}
tls: {{cert: {cert}, key: {key}}}
roles:
  reader: ["queue.statistics"]
users:
  - {{name: boss, password_env: BOSS_PASSWORD, grants: ["*"]}}
  - {{name: worker, password_env: WORKER_PASSWORD, roles: [reader]}}
tubes:
  - {{name: jobs, type: fifo}}
"""


@pytest.fixture(autouse=True)
def left_open() -> Iterator[None]:
    """Let go of what the connector left open, within the test whose marks excuse it."""
    yield
    gc.collect()


class Running:
    def __init__(self, port: int, authority: str, data: Path) -> None:
        self.port = port
        self.authority = authority
        self.data = data

    def connect(self, user: str, password: str) -> tarantool.Connection:
        return tarantool.Connection(
            "127.0.0.1",
            self.port,
            user=user,
            password=password,
            auth_type="chap-sha1",
            transport="ssl",
            ssl_ca_file=self.authority,
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1", "localhost")
    leaf.private_key_pem.write_to_path(str(folder / "key.pem"))
    leaf.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    text = CONFIG.format(data=folder / "data", cert=folder / "cert.pem", key=folder / "key.pem")
    (folder / "node.yaml").write_text(text)
    env = {"BOSS_PASSWORD": PASSWORD, "WORKER_PASSWORD": "w"}
    node = NodeProcess(folder / "log", "--config", str(folder / "node.yaml"), env=env).start()
    yield Running(int(node.address.rpartition(":")[2]), str(folder / "ca.pem"), folder / "data")
    assert node.end() == 0


def test_chap_sha1_over_tls(server: Running) -> None:
    boss = server.connect("boss", PASSWORD)
    assert boss.call("queue.tube.jobs:put", ["x"]).data[0][1] == "r"
    boss.close()
    with pytest.raises(tarantool.error.NetworkError, match="credentials"):
        server.connect("boss", "wrong")


def test_pap_sha256_over_tls(server: Running) -> None:
    connection = tarantool.Connection(
        "127.0.0.1",
        server.port,
        user="boss",
        password=PASSWORD,
        auth_type="pap-sha256",
        transport="ssl",
        ssl_ca_file=server.authority,
        fetch_schema=False,
    )
    assert connection.call("queue.state").data == ["RUNNING"]
    connection.close()
    with pytest.raises(tarantool.error.NetworkError, match="credentials"):
        tarantool.Connection(
            "127.0.0.1",
            server.port,
            user="boss",
            password="wrong",
            auth_type="pap-sha256",
            transport="ssl",
            ssl_ca_file=server.authority,
            fetch_schema=False,
        )


def test_plain_connections_are_not_served(server: Running) -> None:
    async def run() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\xce\x00\x00\x00\x05" + msgpack.packb({0: 64, 1: 1}))
        assert not (await reader.read(200)).startswith(b"Tarantool")
        writer.close()

    asyncio.run(run())


def test_rights_and_grants(server: Running) -> None:
    boss = server.connect("boss", PASSWORD)
    worker = server.connect("worker", "w")
    denied = "Execute access to function 'queue.tube.jobs:take' is denied for user 'worker'"
    with pytest.raises(tarantool.DatabaseError, match=denied):
        worker.call("queue.tube.jobs:take", 0)
    with pytest.raises(tarantool.DatabaseError, match="denied"):
        worker.call("queue.tube.nosuch:take", 0)
    assert worker.call("queue.statistics", "jobs").data[0]["tasks"]
    with pytest.raises(tarantool.DatabaseError, match="Read access to space '_queue'"):
        worker.select(512)
    boss.call("queue.tube.jobs:grant", "worker", {"call": True})
    assert worker.call("queue.tube.jobs:put", "y").data[0][1] == "r"
    assert worker.select(512).data
    with pytest.raises(tarantool.DatabaseError, match="jobs:truncate' is denied"):
        worker.call("queue.tube.jobs:truncate")
    boss.call("queue.tube.jobs:grant_role", "reader", {"truncate": True})
    worker.call("queue.tube.jobs:truncate")
    with pytest.raises(tarantool.DatabaseError, match=r"box\.cfg' is denied"):
        worker.call("box.cfg", {"read_only": True})
    for connection in (boss, worker):
        connection.close()


def test_guest_may_do_nothing_but_ask_who_it_is(server: Running) -> None:
    connection = tarantool.Connection(
        "127.0.0.1",
        server.port,
        transport="ssl",
        ssl_ca_file=server.authority,
        fetch_schema=False,
    )
    assert connection.call("box.session.user").data == ["guest"]
    with pytest.raises(tarantool.DatabaseError, match="denied for user 'guest'"):
        connection.call("queue.state")
    connection.close()


def test_no_password_in_the_data_directory(server: Running) -> None:
    for file in server.data.rglob("*"):
        if file.is_file():
            assert PASSWORD.encode() not in file.read_bytes(), file
