"""Client, worker, command line and Spark's writer against nodes that speak TLS, and that do not."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

import tandemq
from demo.node_process import TANDEMQ, NodeProcess
from tandemq.client.errors import TlsRefused
from tandemq.client.tls import Tls, is_tls
from tandemq.spark.target import Target, TargetError
from tandemq_server.cli import app
from tandemq_server.cli.raw_client import RawConnection, RawError
from tests.cluster.cluster_nodes import Member, free_ports

CONFIG = """
listen: 127.0.0.1:0
admin: 127.0.0.1:{admin}
data_dir: {data}
guest: none
wal: {{mode: write}}
tls: {{cert: {folder}/cert.pem, key: {folder}/key.pem, client_ca: {client_ca}}}
users:
  - {{name: boss, password_env: BOSS_PASSWORD, grants: ["*"]}}
"""
WORKER = "def done(task):\n    open(task.data, 'w').close()\n"


class Said(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@dataclass
class Node:
    """A running node with the files of both sides in `folder`."""

    where: str
    folder: Path
    admin: str

    def tls(self, **more: str | None) -> Tls:
        return Tls(**{"ca": str(self.folder / "ca.pem"), "server_name": "queue.example", **more})

    @property
    def shown(self) -> dict[str, str]:
        return {"cert": str(self.folder / "me.pem"), "key": str(self.folder / "me.key")}

    def run(self, *words: str, env: dict[str, str] | None = None) -> Said:
        """A command, in this process; its variables are given back."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"TANDEMQ_SERVER": self.where, **LOGIN, **(env or {})}.items():
                patch.setenv(name, value)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = app.run(list(words))
        return Said(code, out.getvalue(), err.getvalue())

    def flags(self, *names: str) -> list[str]:
        known = {
            "ca": self.folder / "ca.pem",
            "cert": self.folder / "me.pem",
            "key": self.folder / "me.key",
            "server-name": "queue.example",
        }
        return [word for name in names for word in (f"--tls-{name}", str(known[name]))]


LOGIN = {"TANDEMQ_USER": "boss", "TANDEMQ_PASSWORD": "secret"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The authority, the node's certificate for queue.example, and a client's."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name, whom in (("cert", "queue.example"), ("me", "worker@example.org")):
        leaf = authority.issue_cert(whom)
        leaf.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        leaf.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
    (folder / "cert.key").rename(folder / "key.pem")
    trustme.CA().cert_pem.write_to_path(str(folder / "other.pem"))
    (folder / "jobs.py").write_text(WORKER)
    return folder


def _started(folder: Path, name: str, client_ca: str) -> Iterator[Node]:
    (admin,) = free_ports(1)
    text = CONFIG.format(data=folder / name, folder=folder, client_ca=client_ca, admin=admin)
    (folder / f"{name}.yaml").write_text(text)
    words = ("--config", str(folder / f"{name}.yaml"))
    with NodeProcess(folder / f"{name}.log", *words, env={"BOSS_PASSWORD": "secret"}) as process:
        yield Node(process.address, folder, f"127.0.0.1:{admin}")
        assert process.end() == 0


@pytest.fixture(scope="module")
def node(files: Path) -> Iterator[Node]:
    yield from _started(files, "one", "null")


@pytest.fixture(scope="module")
def strict(files: Path) -> Iterator[Node]:
    """It wants a client's certificate."""
    yield from _started(files, "strict", str(files / "ca.pem"))


def connected(node: Node, tls: Tls | None) -> tandemq.Client:
    return tandemq.connect(node.where, user="boss", password="secret", timeout=20, tls=tls)


@pytest.mark.asyncio
async def test_a_client_puts_and_takes_over_tls(node: Node) -> None:
    async with connected(node, node.tls()) as client:
        tube = await client.create_tube("letters")
        await tube.put({"to": "ada" * 50_000})
        async with await tube.take(timeout=5) as task:
            assert len(task.data["to"]) == 150_000
        await asyncio.gather(*(tube.put(number) for number in range(300)))
        assert (await client.statistics("letters"))["tasks"]["ready"] == 300


@pytest.mark.asyncio
async def test_a_client_shows_its_certificate(strict: Node) -> None:
    async with connected(strict, strict.tls(**strict.shown)) as client:
        assert (await client.call("queue.state"))[0] == "RUNNING"
    with pytest.raises(TlsRefused, match="certificate"):
        await connected(strict, strict.tls()).__aenter__()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ca": "other.pem"}, "its certificate is not valid"),
        ({"server_name": None}, "its certificate is not valid: IP address mismatch"),
    ],
)
@pytest.mark.asyncio
async def test_a_certificate_that_does_not_hold_is_named(
    node: Node, changed: dict[str, str | None], words: str
) -> None:
    if changed.get("ca"):
        changed = {"ca": str(node.folder / "other.pem")}
    with pytest.raises(TlsRefused, match=words):
        await connected(node, node.tls(**changed)).__aenter__()


@pytest.mark.asyncio
async def test_plain_and_tls_that_meet_are_told_apart(node: Node, plain: Member) -> None:
    with pytest.raises(TlsRefused, match="speaks TLS, and was spoken to without"):
        await connected(node, None).__aenter__()
    there = f"127.0.0.1:{plain.port}"
    with pytest.raises(TlsRefused, match=f"{there} speaks no TLS"):
        await tandemq.connect(there, tls=node.tls()).__aenter__()
    assert not await is_tls("127.0.0.1", plain.port)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    ports = free_ports(2)
    member = Member(tmp_path_factory.mktemp("plain"), "a", ports[0], ports[1], [])
    member.start()
    yield member
    member.end()


def test_commands_by_flags_and_by_variables(strict: Node) -> None:
    flags = strict.flags("ca", "cert", "key", "server-name")
    assert strict.run("create", "mails", "fifo", *flags).returncode == 0
    variables = {
        f"TANDEMQ_{word[2:].upper().replace('-', '_')}": value
        for word, value in zip(flags[::2], flags[1::2], strict=True)
    }
    put = strict.run("put", "mails", "x", env=variables)
    assert (put.returncode, put.stderr) == (0, "")
    taken = strict.run("take", "mails", "--json", env=variables)
    assert json.loads(taken.stdout)["payload"] == "x"
    shown = strict.run("bench", "--count", "200", "--json", env=variables)
    assert shown.returncode == 0, shown.stderr
    assert [json.loads(line)["count"] for line in shown.stdout.splitlines()] == [200] * 3


def test_commands_name_what_is_wrong_in_one_line(node: Node, strict: Node, plain: Member) -> None:
    def said(one: Node, *words: str, code: int = 3, **more: str) -> str:
        told = one.run("tubes", *words, env=more)
        assert told.returncode == code, told.stderr
        first, *rest = told.stderr.splitlines()
        assert len(rest) <= 1, told.stderr
        return " ".join([first, *rest])

    assert re.search(r"speaks TLS, and was spoken to without.*--tls-ca", said(node))
    there = {"TANDEMQ_SERVER": f"127.0.0.1:{plain.port}", "TANDEMQ_USER": ""}
    assert "speaks no TLS" in said(node, *node.flags("ca"), **there)
    assert "certificate" in said(strict, *strict.flags("ca", "server-name"))
    assert "--tls-ca" in said(node, *node.flags("server-name"), code=2)
    assert "missing.pem: No such file" in said(node, "--tls-ca", "missing.pem", code=2)


def test_the_admin_api_by_flags_and_by_variables(strict: Node) -> None:
    flags = strict.flags("ca", "cert", "key", "server-name")
    there = {"TANDEMQ_ADMIN_SERVER": strict.admin}
    assert "RUNNING" in strict.run("status", *flags, env=there).stdout
    there |= {
        f"TANDEMQ_ADMIN_{word[2:].upper().replace('-', '_')}": value
        for word, value in zip(flags[::2], flags[1::2], strict=True)
    }
    assert "RUNNING" in strict.run("top", "--once", env=there).stdout
    told = strict.run("status", "--admin", strict.admin)
    assert told.returncode == 3
    assert "if it speaks TLS, give --tls-ca" in told.stderr
    told = strict.run("status", "--admin", strict.where, *strict.flags("ca"))
    assert told.returncode == 3
    assert "its certificate is not valid" in told.stderr


def test_a_worker_works_over_tls(node: Node, tmp_path: Path) -> None:
    flags = node.flags("ca", "server-name")
    assert node.run("create", "files", "fifottl", *flags).returncode == 0
    wanted = tmp_path / "made"
    assert node.run("put", "files", str(wanted), *flags).returncode == 0
    worker = subprocess.Popen(
        [TANDEMQ, "work", "jobs:done", "--tube", "files", *flags],
        env={**os.environ, "TANDEMQ_SERVER": node.where, **LOGIN},
        cwd=node.folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(600):
            if wanted.exists():
                break
            assert worker.poll() is None, worker.stderr.read() if worker.stderr else ""
            asyncio.run(asyncio.sleep(0.05))
        assert wanted.exists()
    finally:
        worker.terminate()
        worker.communicate(timeout=30)
    assert worker.returncode == 0


@pytest.mark.asyncio
async def test_sparks_writer_puts_over_tls(node: Node) -> None:
    async with connected(node, node.tls()) as client:
        await client.create_tube("rows", "fifo")
    host, _, port = node.where.rpartition(":")
    there = ([(host, int(port))], "rows", "boss", "secret")
    target = Target(*there, timeout_s=20, tls=node.tls())
    done = await target.put_all([[[number, {}]] for number in range(20)], lambda _: None)
    assert done.stored == 20
    # A guest may not: its frame is hung up on, which is no reason to try for ever.
    guest = Target(*there[:2], timeout_s=1, tls=node.tls())
    with pytest.raises(TargetError, match="without logging in"):
        await asyncio.wait_for(guest.put_all([[["x" * 20_000, {}]]], lambda _: None), 60)
    with pytest.raises(TargetError, match="speaks TLS"):
        await Target(*there, timeout_s=20).connect()


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="TLS needs the authority"):
        Tls.of(None, "cert.pem")
    with pytest.raises(ValueError, match="without its certificate"):
        Tls("ca.pem", key="key.pem")
    with pytest.raises(ValueError, match=r"ca\.pem: No such file"):
        tandemq.connect(tls={"ca": str(tmp_path / "ca.pem")})
    with pytest.raises(ValueError, match="tls knows ca, cert, key and server_name, not caa"):
        tandemq.connect(tls={"caa": "x"})
    assert Tls.of() is None
    assert Tls.from_environment({"TANDEMQ_TLS_CA": "a", "TANDEMQ_TLS_SERVER_NAME": "b"}) == Tls(
        "a", server_name="b"
    )


def test_the_raw_connection_of_import_and_replay(node: Node, plain: Member) -> None:
    host, _, port = node.where.rpartition(":")
    with RawConnection(host, int(port), "boss", "secret", node.tls()) as raw:
        assert raw.call("queue.state") == "RUNNING"
    with pytest.raises(RawError, match="speaks no TLS"):
        RawConnection("127.0.0.1", plain.port, None, None, node.tls())
