"""Each secret of a pair is rolled while it works: no call fails; what is bad changes nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tarantool
import yaml

from tandemq_server.wire.auth import chap_sha1_hash
from tests.cluster.cluster_nodes import QUICK, Member, until
from tests.ports import free_ports

TOKENS = ("the-first-token-of-all", "the-second-token-of-all")


def hashed(password: str) -> dict[str, str]:
    return {"chap_sha1": chap_sha1_hash(password).hex()}


class Rolling:
    """Nodes a and b with configuration files, and clients that never stop."""

    def __init__(self, home: Path) -> None:
        self.home = home
        ports = free_ports(4)
        self.a = Member(home, "a", ports[0], ports[2], [])
        self.b = Member(home, "b", ports[1], ports[3], [])
        self.user: dict[str, Any] = {"password_hash": hashed("old")}
        self.links: dict[str, Any] = {"password_file": str(home / "old.link")}
        self.more: dict[str, Any] = {"admin_token_file": str(home / "token0")}
        for name, text in (("old.link", "one"), ("new.link", "two"), *self._tokens()):
            (home / name).write_text(f"{text}\n")
            (home / name).chmod(0o600)
        self.write()
        for member in (self.a, self.b):
            member.flags = ("--config", str(home / f"{member.name}.yaml"), *QUICK)
        self.password, self.failed, self.calls = "old", [], 0
        self.over = threading.Event()

    @staticmethod
    def _tokens() -> Iterator[tuple[str, str]]:
        yield from ((f"token{number}", token) for number, token in enumerate(TOKENS))

    def write(self) -> None:
        for one, other in ((self.a, self.b), (self.b, self.a)):
            found = {
                "guest": "none",
                "users": [{"name": "ann", "grants": ["queue.*"], **self.user}],
                "peers": [f"127.0.0.1:{other.port}"],
                "replication": {"user": "nodes", **self.links},
                "tubes": [{"name": "jobs", "type": "fifo"}],
                "wal": {"mode": "write"},
                **self.more,
            }
            (self.home / f"{one.name}.yaml").write_text(yaml.safe_dump(found))

    def reload(self, token: int = 0) -> None:
        self.write()
        for member in (self.a, self.b):
            code, answer = self.ask(member, "/v1/reload", {}, token)
            assert code == 200, answer

    def ask(self, member: Member, path: str, body: Any = None, token: int = 0) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{member.admin_port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {TOKENS[token]}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def work(self) -> None:
        """Short connections, so that each logs in; a put, a take and an ack each."""
        while not self.over.is_set():
            try:
                client = tarantool.Connection(
                    "127.0.0.1", self.a.port, user="ann", password=self.password, fetch_schema=False
                )
                with contextlib.closing(client):
                    client.call("queue.tube.jobs:put", ("x",))
                    task = client.call("queue.tube.jobs:take", (1,)).data[0]
                    client.call("queue.tube.jobs:ack", (task[0],))
                self.calls += 3
            except Exception as error:
                self.failed.append(error)

    def fed(self, token: int = 0) -> bool:
        try:
            found = [self.ask(member, "/v1/status", token=token)[1] for member in (self.a, self.b)]
        except OSError:
            return False
        return bool(found[0]["writable"] and found[1]["following"])


@pytest.fixture
def pair_of_files(tmp_path: Path) -> Iterator[Rolling]:
    nodes = Rolling(tmp_path)
    worker = threading.Thread(target=nodes.work)
    try:
        nodes.a.start("--init", wait=True)
        nodes.b.start("--read-only", wait=False)
        until(nodes.fed, 60)
        worker.start()
        yield nodes
    finally:
        nodes.over.set()
        if worker.ident is not None:
            worker.join()
        for member in (nodes.a, nodes.b):
            if member.process is not None:
                member.end()


def relinked(nodes: Rolling, token: int = 0) -> None:
    """b's process begins anew, so that its links do, in both directions."""
    nodes.b.end()
    nodes.b.start(wait=False)
    until(lambda: nodes.fed(token), 60)


def test_every_secret_is_rolled_and_no_call_fails(pair_of_files: Rolling) -> None:
    nodes = pair_of_files
    # A user's password: both are valid, clients change, the old one goes.
    nodes.user = {"password_hash": hashed("old"), "second_password_hash": hashed("new")}
    nodes.reload()
    nodes.password = "new"
    before = nodes.calls
    until(lambda: nodes.calls > before + 30)
    nodes.user = {"password_hash": hashed("new")}
    nodes.reload()
    with pytest.raises(tarantool.DatabaseError):
        tarantool.Connection(
            "127.0.0.1", nodes.a.port, user="ann", password="old", fetch_schema=False
        )
    # The links' password: accepted, then said, then the old one is gone.
    home = nodes.home
    old, new = str(home / "old.link"), str(home / "new.link")
    nodes.links = {"password_file": old, "second_password_file": new}
    nodes.reload()
    nodes.links = {"password_file": new, "second_password_file": old}
    nodes.reload()
    relinked(nodes)
    nodes.links = {"password_file": new}
    nodes.reload()
    relinked(nodes)
    # The admin API's token.
    nodes.more["admin_second_token_file"] = str(home / "token1")
    nodes.reload()
    nodes.more = {"admin_token_file": str(home / "token1")}
    nodes.reload(token=1)
    assert nodes.ask(nodes.a, "/v1/status")[0] == 401
    assert nodes.ask(nodes.a, "/v1/status", token=1)[0] == 200
    before = nodes.calls
    until(lambda: nodes.calls > before + 30)
    assert nodes.failed == []


def test_what_is_bad_is_refused_as_a_whole(pair_of_files: Rolling) -> None:
    nodes = pair_of_files
    file = nodes.home / "a.yaml"
    good = file.read_text()
    new = yaml.safe_load(good)
    new["users"].append({"name": "bob", "password_hash": hashed("bob"), "grants": ["queue.*"]})
    for bad, line in (
        ({"listen": "127.0.0.1:1"}, ""),
        ({"wal": {"mode": "fsync"}}, "wal: has changed, and needs a restart"),
        ({"roles": 7}, "roles"),
        ({"replication": {**new["replication"], "ack": "pair"}}, "replication.ack"),
        ({"admin_token_file": "/nowhere"}, "cannot be read"),
    ):
        file.write_text(yaml.safe_dump({**new, **bad}))
        code, answer = nodes.ask(nodes.a, "/v1/reload", {})
        if not line:
            assert code == 200, "a flag says where it listens, whatever the file does"
            file.write_text(good)
            assert nodes.ask(nodes.a, "/v1/reload", {})[0] == 200
            continue
        assert code == 409, answer
        assert any(line in one for one in answer["missing"]), answer
        with pytest.raises(tarantool.DatabaseError):
            tarantool.Connection(
                "127.0.0.1", nodes.a.port, user="bob", password="bob", fetch_schema=False
            )
    # By signal, too: refused, then taken.
    nodes.a.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    until(lambda: "reload refused" in nodes.a.text())
    file.write_text(yaml.safe_dump(new))
    nodes.a.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    until(lambda: "reloaded: users" in nodes.a.text())
    bob = tarantool.Connection(
        "127.0.0.1", nodes.a.port, user="bob", password="bob", fetch_schema=False
    )
    file.write_text(good)
    assert nodes.ask(nodes.a, "/v1/reload", {})[1]["closed"] == 1
    with pytest.raises(Exception):  # noqa: B017
        bob.call("queue.statistics", ())
    bob.close()
    assert nodes.failed == []


def test_a_certificate_is_rolled(tmp_path: Path) -> None:
    import trustme

    authority = trustme.CA()

    def issue() -> None:
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(tmp_path / "key.pem")
        issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")

    issue()
    node = Member(tmp_path, "a", *free_ports(2), [])
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"wal": {"mode": "write"}}))
    tls = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    node.flags = ("--config", str(tmp_path / "a.yaml"), *tls)

    def shown() -> bytes:
        return base64.b64encode(
            ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", node.port)))
        )

    node.start()
    try:
        before = shown()
        issue()
        assert shown() == before
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        until(lambda: shown() != before)
    finally:
        node.end()
