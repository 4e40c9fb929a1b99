"""`tandemq doctor`: each finding from what really causes it."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tandemq.log.disk import write_file
from tandemq.log.meta import META_NAME, Meta, encode_meta, open_meta, read_meta
from tandemq.log.segment import segment_names
from tandemq.log.snapshot import snapshot_names
from tandemq.model.record import KIND_TERM, TERM, encode_frame
from tandemq.model.terms import Term
from tandemq_server.cli import main
from tandemq_server.storage.files import FileDisk
from tandemq_server.storage.log import Log
from tandemq_server.storage.recovery import open_log, recover
from tests.cluster.cluster_nodes import LINK_ENV, Member, Pair, free_ports, pair, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
Findings = list[dict[str, Any]]
Doctor = Callable[..., tuple[int, Findings]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """`doctor(words)`: exit code and findings."""
    monkeypatch.setenv("LINK_PASSWORD", LINK_ENV["LINK_PASSWORD"])

    def run(*words: str | Path) -> tuple[int, Findings]:
        capsys.readouterr()
        code = main(["doctor", *map(str, words), "--json"])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def found(findings: Findings, check: str, level: str) -> dict[str, Any]:
    """The one finding of that check and level, with something to do about it."""
    fitting = [one for one in findings if (one["check"], one["level"]) == (check, level)]
    assert len(fitting) == 1, findings
    assert level == "ok" or fitting[0]["todo"]
    return fitting[0]


# -- a directory ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a node with a snapshot, and 30 puts behind it, left."""
    home = tmp_path_factory.mktemp("ended")
    node = Member(home, "n", *free_ports(2), [])
    node.start("--wal-mode", "fsync")
    client = node.connect()
    client.call("queue.create_tube", "jobs", "fifo")
    node.ask("/v1/snapshot", {})
    for number in range(30):
        client.call("queue.tube.jobs:put", number)
    client.close()
    node.end()
    return node.data


@pytest.fixture
def data(ended: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ended, tmp_path / "n"))


def test_a_sound_directory(doctor: Doctor, data: Path) -> None:
    before = {file.name: file.read_bytes() for file in data.iterdir() if file.is_file()}
    code, findings = doctor(data, "--max-sync", "60s", "--min-free", "1MiB", "--strict")
    assert code == 0
    assert {one["check"] for one in findings} == {
        *("identity", "lock", "permissions", "free space", "fsync", "log"),
    }
    assert "held by nobody" in found(findings, "lock", "ok")["text"]
    assert "snapshot 2" in found(findings, "log", "ok")["text"]
    assert {f.name: f.read_bytes() for f in data.iterdir() if f.is_file()} == before


def flip_bit(file: Path, at: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[at] ^= 1
    file.write_bytes(raw)


def test_damage_in_the_log_and_a_torn_end(doctor: Doctor, data: Path) -> None:
    segment = max(data.glob("*.wal"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-5])
    code, findings = doctor(data, "--max-sync", "60s")
    assert code in (0, 1), "the published commit LSN may cover what is gone"
    assert any("torn" in one["text"] or "committed" in one["text"] for one in findings)
    segment.write_bytes(whole)
    flip_bit(segment, 1140)
    code, findings = doctor(data)
    assert code == 1
    errors = [one["text"] for one in findings if one["level"] == "error"]
    assert errors[0].startswith(f"{segment.name}: byte 1101: CRC is ")
    assert "was published as committed" in errors[1]


def test_what_recovery_and_rewinds_leave_behind(doctor: Doctor, data: Path) -> None:
    snapshot = max(data.glob("*.snap"))
    flip_bit(snapshot, snapshot.stat().st_size - 5)
    disk = FileDisk(data)

    class Sink:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: None

    recovered = recover(disk, Sink())  # type: ignore[arg-type]
    log = open_log(disk, recovered)
    log.truncate_from(20)
    log.close()
    disk.release()
    (data / f"{20:020}.wal.torn").write_bytes(b"half a frame")
    code, findings = doctor(data, "--max-sync", "60s")
    assert code == 0
    assert ".wal.torn" in found(findings, "log", "warning")["text"]
    assert ".snap.damaged" in found(findings, "snapshots", "warning")["text"]
    assert "rescue list" in found(findings, "rescue files", "warning")["todo"]
    assert doctor(data, "--max-sync", "60s", "--strict")[0] == 1


def test_no_room_and_a_slow_disk(doctor: Doctor, data: Path) -> None:
    code, findings = doctor(data, "--min-free", str(1 << 60))
    assert code == 1
    found(findings, "free space", "error")
    assert doctor(data, "--max-sync", "0")[0] == 0
    found(doctor(data, "--max-sync", "0")[1], "fsync", "warning")


def test_permissions(doctor: Doctor, data: Path) -> None:
    data.chmod(0o777)
    code, findings = doctor(data)
    assert code == 1
    assert "777" in found(findings, "permissions", "error")["text"]
    data.chmod(0o750)
    segment = max(data.glob("*.wal"))
    segment.chmod(0o644)
    assert segment.name in found(doctor(data)[1], "permissions", "warning")["text"]
    segment.chmod(0o440)
    code, findings = doctor(data)
    assert code == 1
    assert segment.name in found(findings, "permissions", "error")["text"]


def test_no_identity_or_a_newer_one(doctor: Doctor, data: Path, tmp_path: Path) -> None:
    disk = FileDisk(data)
    meta = read_meta(disk)
    assert meta is not None
    write_file(disk, META_NAME, encode_meta(Meta(meta.cluster, meta.node, 0, 2)))
    disk.release()
    code, findings = doctor(data)
    assert code == 1
    assert "format version 2 is newer" in found(findings, "identity", "error")["text"]
    (data / META_NAME).unlink()
    assert "is missing" in found(doctor(data)[1], "identity", "error")["text"]
    code, findings = doctor(tmp_path / "none")
    assert code == 1
    found(findings, "directory", "error")


# -- a configuration -----------------------------------------------------------------------------


def test_a_configuration_that_cannot_be_used(doctor: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "n.yaml"
    file.write_text("listen: nowhere\nwall: {}\n")
    code, findings = doctor("--config", file)
    assert code == 1
    assert {one["level"] for one in findings} == {"error"}
    assert len(findings) == 2


def test_ports_peers_limits_and_secrets(doctor: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "n.yaml"
    free = free_ports(1)[0]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(
            f"data_dir: {tmp_path / 'data'}\nlisten: 127.0.0.1:{port}\n"
            f"peers: [127.0.0.1:{free}]\nlimits: {{connections_max: 900000}}\n"
            "replication: {user: replicator, password_env: LINK_PASSWORD}\n"
            "users: [{name: app, grants: ['*'], password_hash: {chap_sha1: '" + "00" * 20 + "'}}]\n"
        )
        file.chmod(0o644)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
        try:
            code, findings = doctor("--config", file)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert code == 1
    assert "Address already in use" in found(findings, "port", "error")["text"]
    assert "Connection refused" in found(findings, "peer", "warning")["text"]
    assert "900064 wanted" in found(findings, "open files", "warning")["text"]
    assert "password hashes" in found(findings, "permissions", "warning")["text"]
    assert "is off" in found(findings, "admin API", "warning")["text"]
    found(findings, "configuration", "ok")


# -- running nodes -------------------------------------------------------------------------------


def admin(node: Member) -> str:
    return f"127.0.0.1:{node.admin_port}"


LEVELS = ("--max-sync", "60s", "--max-clock", "60s", "--min-free", "1MiB", "--max-lag", "60s")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    flags = ("--set", "replication.lease=60", "--set", "replication.ack=pair")
    with pair(tmp_path_factory.mktemp("doctor"), *flags) as running:
        yield running


def test_a_sound_pair(doctor: Doctor, nodes: Pair) -> None:
    code, findings = doctor(admin(nodes.a), admin(nodes.b), *LEVELS)
    assert code == 0
    assert {one["level"] for one in findings} == {"ok"}, findings
    assert {one["check"] for one in findings} >= {"state", "writable node", "lag", "clock"}
    assert {one["where"] for one in findings} == {
        f"{node.name} ({admin(node)})" for node in (nodes.a, nodes.b)
    }


def test_a_running_node_by_its_configuration(
    doctor: Doctor, nodes: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.yaml"
    file.write_text(
        f"name: b\nread_only: true\ndata_dir: {nodes.b.data}\nlisten: 127.0.0.1:{nodes.b.port}\n"
        f"admin: {admin(nodes.b)}\npeers: [127.0.0.1:{nodes.a.port}]\n"
        "replication: {user: replicator, password_env: LINK_PASSWORD}\n"
    )
    code, findings = doctor("--config", file, *LEVELS)
    assert code == 0
    assert nodes.b.process is not None
    assert f"held by process {nodes.b.process.pid}" in found(findings, "lock", "ok")["text"]
    assert [one["text"] for one in findings if one["check"] == "port"] == [
        f"listen 127.0.0.1:{nodes.b.port} answers",
        f"admin {admin(nodes.b)} answers",
    ]
    assert "term 1, LSN" in found(findings, "state", "ok")["text"]
    assert main(["doctor", "--config", str(file), *LEVELS]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == len(findings) + 1
    assert out[-1].startswith("0 errors, ")


def test_the_port_for_clients_nobody_and_a_word(doctor: Doctor, nodes: Pair) -> None:
    code, findings = doctor(f"127.0.0.1:{nodes.a.port}")
    assert code == 1
    assert "port for clients" in found(findings, "admin API", "error")["todo"]
    code, findings = doctor("127.0.0.1:1")
    assert code == 1
    assert "Connection refused" in found(findings, "admin API", "error")["text"]
    assert doctor("nowhere")[0] == 2


def test_nobody_writable(doctor: Doctor, nodes: Pair) -> None:
    assert nodes.a.role(True)[0] == 200
    code, findings = doctor(admin(nodes.a))
    assert code == 1
    assert "role rw" in found(findings, "writable node", "error")["todo"]
    assert nodes.a.role(False)[0] == 200


def test_few_descriptors(doctor: Doctor, nodes: Pair) -> None:
    assert nodes.a.process is not None
    pid = nodes.a.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert "of 256" in found(doctor(admin(nodes.a))[1], "open files", "warning")["text"]
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_a_replica_that_lags_then_is_gone_and_the_master_alone(doctor: Doctor, nodes: Pair) -> None:
    client = nodes.a.connect()
    client.call("queue.create_tube", "jobs", "fifo")
    assert nodes.b.process is not None
    nodes.b.process.send_signal(signal.SIGSTOP)
    waiting = threading.Thread(target=lambda: client.call("queue.tube.jobs:put", 1))
    waiting.start()

    def lagging() -> bool:
        findings = doctor(admin(nodes.a), "--max-lag", "0.2s")[1]
        return any((one["check"], one["level"]) == ("lag", "warning") for one in findings)

    until(lagging)
    nodes.b.process.send_signal(signal.SIGCONT)
    waiting.join()
    nodes.b.end()
    assert nodes.a.ask("/v1/solo", {})[0] == 200
    code, findings = doctor(admin(nodes.a), *LEVELS)
    assert code == 0
    assert "start it" in found(findings, "link", "warning")["todo"]
    assert "one disk" in found(findings, "pair mode", "warning")["text"]
    nodes.b.start("--read-only")
    until(lambda: not nodes.a.status()["solo"])


def from_the_future(directory: Path) -> None:
    """A log whose only record was written an hour from now."""
    disk = FileDisk(directory)
    now_us = (time.time_ns() // 1000) + 3_600_000_000
    meta = open_meta(disk, b"c" * 16, b"n" * 16, now_us)
    term = Term(1, b"t" * 16, None, 1, "a", False)
    log = Log(disk, meta)
    log.open_term(term, 1)
    record = (now_us, KIND_TERM, None, [(TERM, *term)])
    log.append(encode_frame([record], 1, term.id, 1, 0), 1, 1, now_us)
    log.close()
    disk.release()
    assert segment_names(disk)
    assert not snapshot_names(disk)


def test_clocks_and_slow_syncs(doctor: Doctor, tmp_path: Path) -> None:
    nodes = Pair(tmp_path, "--wal-mode", "fsync")
    from_the_future(nodes.a.data)
    try:
        nodes.start()
        code, findings = doctor(admin(nodes.a), "--max-sync", "0")
        assert code == 0
        clocks = [one for one in findings if (one["check"], one["level"]) == ("clock", "warning")]
        assert any(re.match(r"[+]3[56]\d\d\.\d s against this", one["text"]) for one in clocks), (
            clocks
        )
        found(findings, "fsync", "warning")

        def seen_by_b() -> Findings:
            return [
                one
                for one in doctor(admin(nodes.b))[1]
                if one["check"] == "clock" and "that of a" in one["text"]
            ]

        assert "time service" in until(seen_by_b)[0]["todo"]
    finally:
        nodes.stop()


def test_copies_of_one_directory_a_token_and_no_log(
    doctor: Doctor, ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TANDEMQ_ADMIN_TOKEN", raising=False)
    shutil.copytree(ended, tmp_path / "x")
    shutil.copytree(ended, tmp_path / "y")
    one, two = (Member(tmp_path, name, *free_ports(2), []) for name in ("x", "y"))
    other = Member(tmp_path, "z", *free_ports(2), [])
    other.env = {"SECRET": "a-token-of-some-length"}
    try:
        for node in (one, two):
            node.start(wait=False)
        other.start("--wal-mode", "none", "--set", "admin_token_env=SECRET")
        for node in (one, two):
            node.ready()
        code, findings = doctor(admin(one), admin(two))
        assert code == 1
        assert "copies of the same directory" in found(findings, "identity", "error")["text"]
        assert "both are writable: x, y" in found(findings, "writable node", "error")["text"]
        code, findings = doctor(admin(other))
        assert code == 1
        assert "TANDEMQ_ADMIN_TOKEN" in found(findings, "admin API", "error")["todo"]
        monkeypatch.setenv("TANDEMQ_ADMIN_TOKEN", "a-token-of-some-length")
        code, findings = doctor(admin(one), admin(other), *LEVELS)
        assert code == 1
        assert "different clusters" in found(findings, "identity", "error")["text"]
        assert "a crash loses" in found(findings, "durability", "warning")["text"]
    finally:
        for node in (one, two, other):
            if node.process is not None:
                node.end()
