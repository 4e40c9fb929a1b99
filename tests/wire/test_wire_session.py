"""What opens a connection and keeps it informed: greeting, AUTH, watchers."""

from __future__ import annotations

import base64
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq.model.errors import QueueError
from tandemq_server.wire import auth, watch
from tandemq_server.wire.constants import SERVER_VERSION
from tandemq_server.wire.greeting import greeting, instance_uuid

UUID = "7f3a5c1e-8a55-4f5e-9f0a-0c1d2e3f4a5b"
SALT = bytes(range(32))


def test_greeting() -> None:
    message = greeting(SERVER_VERSION, UUID, SALT)
    assert len(message) == 128
    assert message[:63].rstrip() == f"Tarantool 2.11.0 (Binary) {UUID}".encode()
    assert message[63] == message[127] == 0x0A
    assert base64.b64decode(message[64:108], validate=True) == SALT
    assert message[108:127] == b" " * 19
    assert len(greeting("1.10.15", UUID, SALT)) == 128


def test_an_id_with_an_undefined_variant_is_shown_as_one_that_net_box_reads() -> None:
    bad = "00112233-4455-6677-e899-aabbccddeeff"
    assert instance_uuid(bad) == "00112233-4455-4677-a899-aabbccddeeff"
    assert instance_uuid(bad.replace("-e8", "-F8")) == "00112233-4455-4677-b899-aabbccddeeff"
    for good in "0123456789abcd":
        same = bad.replace("-e8", f"-{good}8")
        assert instance_uuid(same) == same


@pytest.mark.parametrize(
    ("version", "uuid", "salt"),
    [
        ("10.11.12", UUID, SALT),
        ("2.11", UUID, SALT),
        ("2.1.0-b", UUID, SALT),
        ("2.11.0", UUID[1:], SALT),
        ("2.11.0", UUID, SALT[1:]),
    ],
)
def test_greeting_refuses_what_breaks_clients(version: str, uuid: str, salt: bytes) -> None:
    with pytest.raises(ValueError):
        greeting(version, uuid, salt)


# -- AUTH ------------------------------------------------------------------------------------------

H2 = bytes.fromhex("94bdcebe19083ce2a1f959fd02f964c7af4cfc29")
SCRAMBLE = bytes.fromhex("3fe5b8b153bb1903ca13f85fd141b7608f11af3d")


def test_chap_vector() -> None:
    assert auth.chap_sha1_hash("test") == H2
    assert auth.chap_sha1_scramble("test", SALT) == SCRAMBLE
    assert auth.check_chap_sha1(H2, SALT, SCRAMBLE)


def test_chap_refuses() -> None:
    for scramble in (b"", SCRAMBLE[:19], SCRAMBLE + b"x", bytes(20), SCRAMBLE[:19] + b"\x00"):
        assert not auth.check_chap_sha1(H2, SALT, scramble)
    assert not auth.check_chap_sha1(H2, SALT[::-1], SCRAMBLE)


@given(st.text(), st.text(), st.binary(min_size=32, max_size=32))
def test_chap_matches_only_its_password(password: str, other: str, salt: bytes) -> None:
    stored = auth.chap_sha1_hash(password)
    assert auth.check_chap_sha1(stored, salt, auth.chap_sha1_scramble(password, salt))
    mixed = auth.check_chap_sha1(stored, salt, auth.chap_sha1_scramble(other, salt))
    assert mixed == (password == other)


def test_pap() -> None:
    stored = auth.pap_hash("secret", SALT)
    assert auth.check_pap(stored, SALT, b"secret")
    assert not auth.check_pap(stored, SALT, b"Secret")


def body(user: Any, parts: Any) -> dict[int, Any]:
    return {0x23: user, 0x21: parts}


def test_parse_auth() -> None:
    as_str = SCRAMBLE.decode("utf-8", "surrogateescape")
    for data in (SCRAMBLE, as_str):
        assert auth.parse_auth(body("u", ["chap-sha1", data])) == ("u", "chap-sha1", SCRAMBLE)
    assert auth.parse_auth(body("guest", [])) == ("guest", "", b"")
    pap = auth.parse_auth(body("u", ["pap-sha256", "pw"]), ("chap-sha1", "pap-sha256"))
    assert pap == ("u", "pap-sha256", b"pw")


@pytest.mark.parametrize(
    ("request_body", "code"),
    [
        ({0x21: []}, 69),
        ({0x23: "u"}, 69),
        (body(5, []), 20),
        (body("u", "x"), 20),
        (body("u", []), 20),
        (body("u", ["chap-sha1"]), 20),
        (body("u", [5, SCRAMBLE]), 20),
        (body("u", ["chap-sha1", 5]), 20),
        (body("u", ["chap-sha1", SCRAMBLE[:19]]), 20),
        (body("u", ["chap-sha256", SCRAMBLE]), 249),
        (body("u", ["pap-sha256", "pw"]), 249),
    ],
)
def test_parse_auth_refuses(request_body: dict[int, Any], code: int) -> None:
    with pytest.raises(QueueError) as caught:
        auth.parse_auth(request_body)
    assert caught.value.code == code


def test_denied_names_nobody() -> None:
    assert auth.denied().code == 47


# -- watchers --------------------------------------------------------------------------------------


def told(raw: bytes | None) -> tuple[int, dict[int, Any]]:
    assert raw is not None
    reader = msgpack.Unpacker(strict_map_key=False)
    reader.feed(raw[5:])
    header = reader.unpack()
    assert header[0] == 76
    return header[1], reader.unpack()


def test_event_once_per_acknowledgement() -> None:
    watchers = watch.Watchers()
    assert told(watchers.watch("k", 1, has_value=True, value="a")) == (1, {0x57: "k", 0x58: "a"})
    assert watchers.changed("k", "b") == []
    assert watchers.changed("k", "c") == []
    # The acknowledgement brings the newest value, under the newest sync.
    assert told(watchers.watch("k", 2, has_value=True, value="c")) == (2, {0x57: "k", 0x58: "c"})
    assert watchers.watch("k", 3, has_value=True, value="c") is None
    (event,) = watchers.changed("k", "d")
    assert told(event) == (3, {0x57: "k", 0x58: "d"})
    assert watchers.changed("k", "e") == []


def test_key_never_broadcast() -> None:
    watchers = watch.Watchers()
    assert told(watchers.watch("box.shutdown", 1, has_value=False)) == (1, {0x57: "box.shutdown"})
    assert watchers.changed("other", 1) == []
    assert watchers.watch("box.shutdown", 2, has_value=False) is None
    assert told(watchers.changed("box.shutdown", True)[0])[1] == {0x57: "box.shutdown", 0x58: True}


def test_unwatch() -> None:
    watchers = watch.Watchers()
    watchers.watch("k", 1, has_value=False)
    assert "k" in watchers
    assert len(watchers) == 1
    watchers.unwatch("k")
    watchers.unwatch("never")
    assert watchers.changed("k", 1) == []
    assert told(watchers.watch("k", 2, has_value=True, value=1)) == (2, {0x57: "k", 0x58: 1})


def test_watched_keys_are_limited() -> None:
    watchers = watch.Watchers()
    for number in range(watch.KEYS_MAX):
        watchers.watch(f"k{number}", 1, has_value=False)
    with pytest.raises(QueueError):
        watchers.watch("one more", 1, has_value=False)
    assert watchers.watch("k0", 2, has_value=False) is None


def test_parse_key() -> None:
    assert watch.parse_key({0x57: "k"}) == "k"
    for request_body, code in (({}, 69), ({0x57: 5}, 20)):
        with pytest.raises(QueueError) as caught:
            watch.parse_key(request_body)
        assert caught.value.code == code
