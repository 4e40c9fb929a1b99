"""Log lines nobody can forge, and rights as the configuration gives them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from tandemq_server.config import Settings
from tandemq_server.node.core.users import Users
from tandemq_server.node.loop.log_lines import Logger
from tandemq_server.wire.auth import chap_sha1_hash, chap_sha1_scramble

SALT = bytes(range(32))
NASTY = "a\nb\x1b[2Jc\x9b\x7fd"


def written(level: str, form: str, write: str, text: str) -> str:
    stream = io.StringIO()
    getattr(Logger(level, form, stream), write)(text)
    return stream.getvalue()


def test_human_lines() -> None:
    line = written("info", "human", "warning", NASTY)
    assert line.count("\n") == 1
    assert line.endswith("warning a\\x0ab\\x1b[2Jc\\x9b\\x7fd\n")


def test_json_lines() -> None:
    line = written("info", "json", "error", NASTY)
    assert line.count("\n") == 1
    assert line.isascii()
    entry = json.loads(line)
    assert (entry["level"], entry["message"]) == ("error", NASTY)
    assert entry["time"].endswith("+00:00")


@pytest.mark.parametrize(
    ("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)]
)
def test_levels(level: str, shown: int) -> None:
    lines = [written(level, "human", write, "x") for write in ("debug", "info", "warning", "error")]
    assert sum(map(bool, lines)) == shown


@pytest.mark.parametrize("form", ["human", "json"])
def test_exceptions_come_with_their_trace(form: str) -> None:
    stream = io.StringIO()
    try:
        raise ValueError(NASTY)
    except ValueError as error:
        Logger("info", form, stream).exception("it broke", error)
    text = stream.getvalue()
    assert "it broke" in text
    assert "ValueError" in text
    assert "\x1b" not in text


def users(**settings: Any) -> Users:
    return Users(Settings.load(None, settings, {"PASSWORD": "secret"}))


@pytest.mark.parametrize(
    ("grants", "call", "expected"),
    [
        (["queue.tube.jobs:put"], "queue.tube.jobs:put", True),
        (["queue.tube.jobs:put"], "queue.tube.jobs:take", False),
        (["queue.tube.jobs:*"], "queue.tube.jobs:take", True),
        (["queue.tube.jobs:*"], "queue.tube.jobs2:take", False),
        (["queue.*"], "queue.create_tube", True),
        (["queue.*"], "box.snapshot", False),
        (["queue.*"], "space:_queue", False),
        (["*"], "box.snapshot", True),
        ([], "box.info", True),
        ([], "queue.statistics", False),
    ],
)
def test_rights(grants: list[str], call: str, expected: bool) -> None:
    some = users(users=[{"name": "a", "password_env": "PASSWORD", "grants": grants}])
    assert some.may("a", call) is expected
    assert users(guest=grants).may("guest", call) is expected


def test_roles() -> None:
    member = {"name": "a", "password_env": "PASSWORD", "roles": ["r"]}
    some = users(users=[member], roles={"r": ["queue.identify"]})
    assert some.may("a", "queue.identify")
    assert not some.may("guest", "queue.identify")
    assert some.grantees("a") == ("a", "role:r")


def test_logging_in() -> None:
    some = users(users=[{"name": "a", "password_env": "PASSWORD"}])
    good = chap_sha1_scramble("secret", SALT)
    assert some.authenticate("a", "chap-sha1", good, SALT)
    assert some.authenticate("a", "pap-sha256", b"secret", SALT)
    assert not some.authenticate("a", "chap-sha1", good, bytes(32))
    assert not some.authenticate("a", "pap-sha256", b"wrong", SALT)
    assert not some.authenticate("b", "chap-sha1", good, SALT)
    assert not some.authenticate("guest", "chap-sha1", good, SALT)


def test_no_pap_without_its_hash() -> None:
    kept = {"chap_sha1": chap_sha1_hash("secret").hex()}
    some = users(users=[{"name": "a", "password_hash": kept}])
    assert not some.authenticate("a", "pap-sha256", b"secret", SALT)
