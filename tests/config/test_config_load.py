"""Every mistake in a configuration is one line that names source, key, reason and range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tandemq_server.config import ConfigError, Settings
from tandemq_server.wire.auth import (
    chap_sha1_hash,
    chap_sha1_scramble,
    check_chap_sha1,
    check_pap,
    pap_hash,
)

HASH = "a" * 40
RANGE = "is out of range (accepted: {})"
LINKED = "peers: ['127.0.0.1:1']\nreplication: {user: r, password_env: T}"

FILE_MISTAKES = [
    (
        "name: 5",
        "name: 5 is not text: put it in quotes (accepted: letters, digits, _ . -, 63 at most)",
    ),
    ("name: 'a b'", "name: 'a b' is not accepted (accepted: letters, digits, _ . -, 63 at most)"),
    ("lissten: x", "lissten: unknown key (did you mean listen?)"),
    (
        "listen: '3301'",
        "listen: 3301 is not an address, such as 127.0.0.1:3301 or [::1]:3301"
        " (accepted: host:port)",
    ),
    (
        "listen: localhost:x",
        "listen: localhost:x has no port number from 0 to 65535 after its last"
        " colon (accepted: host:port)",
    ),
    ("listen: null", "listen: null is not text: put it in quotes (accepted: host:port)"),
    (
        "wal: {mode: sometimes}",
        "wal.mode: sometimes is not accepted (accepted: none, write, fsync)",
    ),
    ("wal: {mod: write}", "wal.mod: unknown key (did you mean mode?)"),
    ("wal: 7", "wal: 7 is not a map"),
    ("wal: {segment_bytes: 5}", f"wal.segment_bytes: 5 {RANGE.format('64KiB to 1GiB')}"),
    ("wal: {segment_bytes: 2GiB}", f"wal.segment_bytes: 2GiB {RANGE.format('64KiB to 1GiB')}"),
    ("snapshot: {keep: 0}", f"snapshot.keep: 0 {RANGE.format('1 to 100')}"),
    (
        "limits: {connections_max: true}",
        "limits.connections_max: true is not a whole number (accepted: 1 to 1000000)",
    ),
    (
        "limits: {frame_bytes_max: many}",
        "limits.frame_bytes_max: many is not a size in bytes, such"
        " as 1048576 or 1MiB (accepted: 1KiB to 255MiB)",
    ),
    (
        "limits: {idle_seconds: -1s}",
        f"limits.idle_seconds: -1s {RANGE.format('50ms to 365d, null')}",
    ),
    (
        "limits: {idle_seconds: .inf}",
        "limits.idle_seconds: inf is not a duration, such as 5, 500ms"
        " or 1h30m (accepted: 50ms to 365d, null)",
    ),
    (
        "limits: {payload_bytes_max: 2MiB, frame_bytes_max: 1MiB}",
        "limits.payload_bytes_max: must not exceed limits.frame_bytes_max",
    ),
    ("queue: {ttr: -1}", f"queue.ttr: -1 {RANGE.format('0s to 36500d')}"),
    (
        "queue: {in_replicaset: perhaps}",
        "queue.in_replicaset: perhaps is not accepted (accepted: true, false)",
    ),
    (
        "peers: ['127.0.0.1:1', x]",
        "peers[1]: x is not an address, such as 127.0.0.1:3301 or"
        " [::1]:3301 (accepted: addresses host:port)",
    ),
    (
        "peers: ['127.0.0.1:1', '127.0.0.1:1']\nreplication: {user: r, password_env: T}",
        "peers: 127.0.0.1:1 is given twice",
    ),
    (
        "peers: ['127.0.0.1:3301']\nreplication: {user: r, password_env: T}",
        "peers: 127.0.0.1:3301 is this node itself",
    ),
    (
        "peers: ['127.0.0.1:1']",
        "replication.user: is required with peers: nobody follows as guest",
    ),
    (
        "peers: ['127.0.0.1:1']\nreplication: {user: r}",
        "replication.password_file: or password_env is required with peers",
    ),
    (
        "peers: ['127.0.0.1:1']\nreplication: {user: guest, password_env: T}",
        "replication.user: guest has no password: name a user",
    ),
    (
        "replication: {user: r, password_file: /dev/null}",
        "replication.password_file: /dev/null must hold one line",
    ),
    (
        "users: [{name: a, password_file: /nowhere/at/all}]",
        "users[0].password_file: /nowhere/at/all cannot be read: No such file or directory",
    ),
    (
        "users: [{name: 'role:a', password_env: T}]",
        "users[0].name: must not begin with role:, as grants to roles do",
    ),
    ("replication: {ack: pair}", "replication.ack: pair needs at least one of peers"),
    (
        "replication: {heartbeat: 9s}",
        "replication.lease: must be longer than replication.heartbeat",
    ),
    (
        "name: a\nfailover: {cluster: c, arbiter: witness, max_loss_records: 0}",
        "failover.arbiter: needs at least one of peers",
    ),
    (
        "name: a\nfailover: {cluster: c, arbiter: etcd}\n" + LINKED,
        "failover.arbiter: with replication.ack local a takeover can lose acknowledged records: "
        "set failover.max_loss_records, or ack pair",
    ),
    (
        "name: a\nfailover: {arbiter: etcd, max_loss_records: 0}\n" + LINKED,
        "failover.arbiter: needs failover.cluster, the same name on all nodes",
    ),
    (
        "failover: {arbiter: etcd, cluster: c, max_loss_records: 0}\n" + LINKED,
        "failover.arbiter: needs a name of this node's own: set name",
    ),
    (
        "failover: {silence: 0.5}",
        "failover.silence: must be longer than failover.heartbeat",
    ),
    (
        "failover: {arbiter: zookeeper}",
        "failover.arbiter: zookeeper is not accepted (accepted: etcd, witness, null)",
    ),
    (
        "failover: {witness: {url: 'ftp://host'}}",
        "failover.witness.url: ftp://host is not a URL such as http://127.0.0.1:2379 "
        "(accepted: a URL, http or https)",
    ),
    (
        "failover: {witness: {token_env: NOT_SET}}",
        "failover.witness.token_env: variable NOT_SET is not set",
    ),
    (
        "failover: {witness: {ca: /nowhere}}",
        "failover.witness.url: ca needs https",
    ),
    (
        "failover: {etcd: {user: tandemq}}",
        "failover.etcd.user: user and password go together",
    ),
    (
        "failover: {etcd: {password_file: /nowhere}}",
        "failover.etcd.user: user and password go together",
    ),
    (
        "failover: {etcd: {endpoints: ['https://a:1'], key: /nowhere}}",
        "failover.etcd.certificate: certificate and key go together",
    ),
    (
        "failover: {etcd: {endpoints: ['https://a:1', 'http://b:1'], ca: /nowhere}}",
        "failover.etcd.endpoints[1]: ca and certificate need https",
    ),
    (
        "name: a\nfailover: {cluster: c, arbiter: witness}\npeers: ['127.0.0.1:1']\n"
        "replication: {ack: pair, user: r, password_env: T}\n"
        "compat: {promotion: original}",
        "compat.promotion: original and failover.arbiter exclude each other",
    ),
    ("admin: 127.0.0.1:3301", "admin: 127.0.0.1:3301 is already the address of listen"),
    ("admin: '0.0.0.0:1'\nadmin_token_env: T", "admin: off loopback 0.0.0.0:1 needs tls"),
    (
        "admin_hosts: [queue.internal, 'queue.internal:8081']",
        "admin_hosts[1]: queue.internal:8081 is not the name of a host, without port"
        " (accepted: names or addresses of hosts, without port)",
    ),
    (
        "guest: all\nlisten: '0.0.0.0:1'",
        "guest: all is refused on 0.0.0.0:1, which other machines"
        " can reach: name users, or set allow_open",
    ),
    ("users: {a: b}", "users: is not a list (accepted: a list of users)"),
    ("users: [{}]", "users[0].name: is required (accepted: 1 to 200 characters)"),
    ("users: [{name: a}]", "users[0]: needs either password_hash, password_env or password_file"),
    (
        "users: [{name: guest, password_env: T}]",
        "users[0].name: guest has no password: use the key guest",
    ),
    (
        "users: [{name: a, password_hash: {chap_sha1: secret}}]",
        "users[0].password_hash.chap_sha1:"
        " is not a chap-sha1 hash: run `tandemq hash-password` (accepted: 40 hex digits)",
    ),
    (
        f"users: [{{name: a, password_hash: {{chap_sha1: {HASH}, pap_sha256: secret}}}}]",
        "users[0].password_hash.pap_sha256: is not a pap-sha256 hash (salt:hash): run"
        " `tandemq hash-password` (accepted: salt:hash in hex, null)",
    ),
    ("users: [{name: a, password_env: NOPE}]", "users[0].password_env: variable NOPE is not set"),
    ("users: [{name: a, password_env: T, roles: [r]}]", "users[0].roles: r is not one of roles"),
    (
        "users: [{name: a, password_env: T, grants: ['x y']}]",
        "users[0].grants[0]: 'x y' is not a"
        " pattern of call names, such as queue.tube.jobs:* or * (accepted: patterns of call names)",
    ),
    (
        "drivers: {lifo: here}",
        "drivers.lifo: here is not of the form module:name (accepted: a map to module:Class)",
    ),
    ("drivers: {fifo: 'a:B'}", "drivers.fifo: is the name of a built-in driver"),
    ("tubes: [{name: a, type: fifo}, {name: a, type: fifo}]", "tubes: a is given twice"),
    (
        "queue: {in_replicaset: true}\ntubes: [{name: a, type: fifo, options: {temporary: true}}]",
        "tubes[0].options: temporary and queue.in_replicaset exclude each other",
    ),
    ("tls: {cert: a}", "tls.key: is required (accepted: a file)"),
    (
        "tls: {cert: /nope, key: /nope}",
        "tls: certificate or key cannot be used: [Errno 2] No such file or directory",
    ),
    (
        "log: {level: loud}",
        "log.level: loud is not accepted (accepted: debug, info, warning, error)",
    ),
    ("data_dir: /etc/passwd", "data_dir: /etc/passwd is not a directory"),
]
NOT_YAML = [
    ("a: [", ":1:5: not YAML: expected the node content, but found '<stream end>'"),
    ("wal: {}\nwal: {}", ":2:1: not YAML: key 'wal' is given twice"),
    ("- a", ": expected a map of settings, such as listen: 127.0.0.1:3301"),
    ("a\x00b", ": not YAML: unacceptable character #x0000: special characters are not allowed"),
]
ENVIRONMENT = {"T": "secret"}


def lines(config: Any, flags: dict[str, Any] | None = None, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        Settings.load(config, flags, {**ENVIRONMENT, **env})
    return caught.value.lines


@pytest.mark.parametrize(("content", "complaint"), FILE_MISTAKES, ids=[m[0] for m in FILE_MISTAKES])
def test_mistake_in_a_file(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(content)
    assert lines(path) == [f"{path}: {complaint}"]


@pytest.mark.parametrize(("content", "complaint"), NOT_YAML)
def test_not_yaml(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(content)
    assert lines(path) == [f"{path}{complaint}"]


def test_no_file(tmp_path: Path) -> None:
    path = tmp_path / "nope.yaml"
    assert lines(path) == [f"{path}: cannot be read: No such file or directory"]
    path.write_bytes(b"name: \xff")
    assert lines(path) == [f"{path}: is not UTF-8 at byte 6"]


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("wal: {mode: x}\nsnapshot: {keep: 0}")
    found = lines(path, {"queue.ttr": "soon"}, TANDEMQ_LOG__LEVEL="loud", TANDEMQ_LOGS__LEVEL="x")
    assert [line.split(" ")[0] for line in found] == [
        "TANDEMQ_LOGS__LEVEL:", "--ttr:", f"{path}:", f"{path}:", "TANDEMQ_LOG__LEVEL:",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"queue.ttr": "soon"}, "--ttr: queue.ttr: soon is not a duration, such as 5, 500ms or"
         " 1h30m (accepted: 0s to 36500d)"),
        ({"wal.mode": ""}, "--wal-mode: wal.mode: '' is not accepted (accepted: none, write,"
         " fsync)"),
        ({"peers": ["x"]}, "--peer: peers[0]: x is not an address, such as 127.0.0.1:3301 or"
         " [::1]:3301 (accepted: addresses host:port)"),
        ({"limits.frames": 1}, "--set limits.frames: limits.frames: unknown key"),
        ({"snapshot.keep": 1.5}, "--set snapshot.keep: snapshot.keep: 1.5 is not a whole number"
         " (accepted: 1 to 100)"),
    ],
)  # fmt: skip
def test_mistake_in_a_flag(flags: dict[str, Any], complaint: str) -> None:
    assert lines(None, flags) == [complaint]


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("TANDEMQ_WAL__MODE", "x", "wal.mode: x is not accepted (accepted: none, write, fsync)"),
        ("TANDEMQ_LISTN", "x", "unknown variable (did you mean TANDEMQ_LISTEN?)"),
        ("TANDEMQ_WALL__MODE", "x", "unknown variable (did you mean TANDEMQ_WAL__MODE?)"),
        ("TANDEMQ_WAL__MOD", "x", "wal.mod: unknown key (did you mean mode?)"),
        ("TANDEMQ_USERS", "x", "users: is not JSON, which this key needs in a variable"),
    ],
)
def test_mistake_in_a_variable(name: str, value: str, complaint: str) -> None:
    assert lines(None, None, **{name: value}) == [f"{name}: {complaint}"]


def test_variables_of_others_are_left_alone() -> None:
    env = {
        "TANDEMQ_SERVER": "x", "TANDEMQ_PASSWORD": "x", "TANDEMQ_SERVICE_HOST": "x",
        "TANDEMQ_PORT_3301_TCP_ADDR": "x", "TANDEMQ_A_SERVICE_PORT_IPROTO": "1",
        "TANDEMQ_SECRET": "x", "TANDEMQ_ADMIN_SERVER": "x", "TANDEMQ_ADMIN_TOKEN": "x",
    }  # fmt: skip
    settings = Settings.load(None, {"admin_token_env": "TANDEMQ_SECRET"}, env)
    assert settings.admin_token_env == "TANDEMQ_SECRET"


def test_precedence(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(
        "name: file\nlisten: 127.0.0.1:1\nadmin: 127.0.0.1:2\nwal: {segment_bytes: 1MiB}"
    )
    env = {"TANDEMQ_NAME": "variable", "TANDEMQ_LISTEN": "127.0.0.1:3", "TANDEMQ_WAL__MODE": "none"}
    settings = Settings.load(path, {"name": "flag"}, env)
    assert (settings.name, settings.listen_port) == ("flag", 3)
    assert settings.admin_address == ("127.0.0.1", 2)
    assert (settings.wal.mode, settings.wal.segment_bytes) == ("none", 1 << 20)


def test_defaults() -> None:
    settings = Settings.load()
    assert (settings.listen_host, settings.listen_port) == ("127.0.0.1", 3301)
    assert (settings.wal.mode, settings.guest_rights(), settings.peers) == ("fsync", (), ())
    assert settings.limits.payload_bytes_max == 1 << 20
    assert settings.tls is None


def test_empty_sections_are_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("wal:\n  # mode: fsync\nlimits:\n")
    assert Settings.load(path) == Settings.load()
    path.write_text("")
    assert Settings.load(path) == Settings.load()


def test_lists_in_variables() -> None:
    env = {
        "TANDEMQ_PEERS": "127.0.0.1:1, [::1]:2",
        "TANDEMQ_REPLICATION__USER": "replicator",
        "TANDEMQ_REPLICATION__PASSWORD_ENV": "SECRET",
        "SECRET": "a",
        "TANDEMQ_GUEST": "queue.*,box.info",
        "TANDEMQ_TUBES": '[{"name": "a", "type": "fifo"}]',
        "TANDEMQ_REPLICATION__SOLO_AFTER": "null",
    }
    settings = Settings.load(None, None, env)
    assert settings.peer_addresses == (("127.0.0.1", 1), ("::1", 2))
    assert settings.guest_rights() == ("queue.*", "box.info")
    assert settings.tubes[0].name == "a"
    assert settings.replication.solo_after is None


def test_guest_all_off_loopback_can_be_permitted() -> None:
    flags = {"guest": "all", "listen": "0.0.0.0:3301", "allow_open": True}
    assert Settings.load(None, flags).guest_rights() == ("*",)


def test_passwords_from_variables_become_hashes() -> None:
    user = Settings.load(None, {"users": [{"name": "a", "password_env": "T"}]}, ENVIRONMENT).users[
        0
    ]
    salt = bytes(range(32))
    assert check_chap_sha1(user.hashes[0].chap_sha1, salt, chap_sha1_scramble("secret", salt))
    kept = user.hashes[0].pap_sha256
    assert kept is not None
    assert check_pap(kept[1], kept[0], b"secret")
    assert "secret" not in repr(user)


@pytest.mark.parametrize("form", ["hex", "base64"])
def test_hashes_in_a_file(tmp_path: Path, form: str) -> None:
    import base64

    stored, salt = chap_sha1_hash("secret"), b"salt"
    chap = stored.hex() if form == "hex" else base64.b64encode(stored).decode()
    path = tmp_path / "node.yaml"
    pap = f"{salt.hex()}:{pap_hash('secret', salt).hex()}"
    path.write_text(
        f"roles: {{r: ['queue.tube.a:*']}}\nusers:\n"
        f"  - {{name: a, roles: [r], grants: [box.info],"
        f" password_hash: {{chap_sha1: '{chap}', pap_sha256: '{pap}'}}}}"
    )
    settings = Settings.load(path)
    user = settings.users[0]
    assert user.hashes[0].chap_sha1 == stored
    assert user.hashes[0].pap_sha256 == (salt, pap_hash("secret", salt))
    assert user.rights(settings.roles) == ("box.info", "queue.tube.a:*")


def test_settings_never_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings.load().name = "b"  # type: ignore[misc]
