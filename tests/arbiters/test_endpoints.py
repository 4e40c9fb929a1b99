"""Several addresses, one time for all of them: who is asked when, and what is said at the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tandemq_server.arbiters.base import ArbiterRefused, Unreachable
from tandemq_server.arbiters.endpoints import Endpoints, NoAnswer
from tandemq_server.arbiters.etcd import Etcd
from tandemq_server.arbiters.open import open_arbiter
from tandemq_server.arbiters.witness_client import Witness
from tandemq_server.config.arbiters import EtcdSettings, WitnessSettings
from tests.arbiters.arbiter_worlds import SLACK_S

pytestmark = [pytest.mark.asyncio]


async def test_one_that_is_silent_leaves_time_for_the_others() -> None:
    endpoints = Endpoints("etcd", ("silent", "refusing", "good"), 1.0)
    asked: Counter[str] = Counter()

    async def one(url: str) -> str:
        asked[url] += 1
        if url == "silent":
            await asyncio.sleep(60)
        if url == "refusing":
            raise ConnectionRefusedError(111, "Connection refused")
        return url

    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await endpoints.ask(one) == "good"
    assert loop.time() - began < 0.8
    began = loop.time()
    assert await endpoints.ask(one) == endpoints.url == "good"
    assert loop.time() - began < 0.1
    assert asked == {"silent": 1, "refusing": 1, "good": 2}


async def test_nobody_answers_and_each_is_named_with_its_reason() -> None:
    endpoints = Endpoints("etcd", ("silent", "refusing", "odd"), 0.6)
    asked: Counter[str] = Counter()

    async def one(url: str) -> str:
        asked[url] += 1
        if url == "silent":
            await asyncio.sleep(60)
        if url == "refusing":
            raise ConnectionRefusedError(111, "Connection refused")
        raise NoAnswer("HTTP 502")

    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(Unreachable) as nobody:
        await endpoints.ask(one)
    assert 0.5 < loop.time() - began < 0.6 + SLACK_S
    said = str(nobody.value)
    assert "silent: no answer within" in said
    assert "refusing: Connection refused; odd: HTTP 502" in said
    # The next question begins with another one.
    assert endpoints.url == "refusing"


async def test_what_is_an_answer_is_passed_on_at_once() -> None:
    endpoints = Endpoints("etcd", ("one", "other"), 1.0)

    async def one(url: str) -> str:
        raise ArbiterRefused(url)

    with pytest.raises(ArbiterRefused, match="one"):
        await endpoints.ask(one)


async def test_settings_become_an_arbiter(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a-password\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "long").write_text("x" * 5000)
    etcd = open_arbiter(
        EtcdSettings(
            endpoints="http://127.0.0.1:1, https://[::1]:2379/",
            user="tandemq",
            password_file=tmp_path / "secret",
        ),
        "jobs",
        3.0,
        1.0,
    )
    assert isinstance(etcd, Etcd)
    assert etcd.name == "etcd at http://127.0.0.1:1, https://[::1]:2379"
    witness = open_arbiter(
        WitnessSettings(url="http://127.0.0.1:8400/", token_env="WORD"), "jobs", 3, 1, {"WORD": "w"}
    )
    assert isinstance(witness, Witness)
    assert witness.name == "witness at http://127.0.0.1:8400"
    for settings, cluster, said in (
        (WitnessSettings(), "a/b", "failover.cluster"),
        (WitnessSettings(token_env="WORD"), "jobs", "variable WORD is not set"),
        (WitnessSettings(token_file=tmp_path / "none"), "jobs", "No such file"),
        (WitnessSettings(token_file=tmp_path / "empty"), "jobs", "not one line with a secret"),
        (EtcdSettings(user="u", password_file=tmp_path / "long"), "jobs", "not one line"),
        (WitnessSettings(url="https://w:1", ca=tmp_path / "none"), "jobs", "cannot be used"),
    ):
        with pytest.raises(ArbiterRefused, match=said):
            open_arbiter(settings, cluster, 3.0, 1.0, {})
    for bad in ("127.0.0.1:2379", "ftp://host", "http://", "http://u:p@host", "http://a b", ""):
        with pytest.raises(ValueError):
            WitnessSettings(url=bad)
        with pytest.raises(ValueError):
            EtcdSettings(endpoints=[bad])
