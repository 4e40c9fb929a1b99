"""The table of peers: what is missing is named, a turn runs each one anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks import peer_loads
from benchmarks.broker_servers import PeerMissing, Server
from benchmarks.load import Shape
from benchmarks.peers import Found, Peer, markdown, measure, peers
from benchmarks.target import Effort

ABOUT = {"commit": "c", "time": "t", "python": "3", "cores": 2, "cpu": "x", "kernel": "6"}
EFFORT = Effort(2, 40, 1, False, Shape(in_flight=2))


def missing() -> str:
    raise PeerMissing("the Debian package nothing is missing")


@asynccontextmanager
async def no_server(directory: Path) -> AsyncIterator[Server]:
    assert not directory.exists()
    directory.mkdir()
    yield Server("nowhere", lambda: 0.0)


@asynccontextmanager
async def no_load(url: str, effort: Effort) -> AsyncIterator[Any]:
    class Idle:
        async def put(self, count: int) -> int:
            return count

        async def take_ack(self, count: int) -> int:
            return 2 * count

    yield Idle()


def run(chosen: list[Peer], home: Path) -> tuple[list[Found], str]:
    said: list[str] = []
    found = asyncio.run(measure(chosen, home, EFFORT, said.append))
    return found, "\n".join(said) + markdown(found, {**ABOUT, "others": 0.0}, EFFORT)


def test_what_is_missing_is_named_and_the_rest_measured(tmp_path: Path) -> None:
    here = Peer("here", False, lambda: "1", no_server, no_load)
    found, text = run([here, Peer("gone", True, missing, no_server, no_load)], tmp_path)
    assert [len(one.samples["put"]) for one in found] == [2, 0]
    assert "skipped: gone: the Debian package nothing is missing" in text
    assert "| gone | not measured: the Debian package nothing is missing |" in text
    assert "| here | 1 | " in text


def test_tandem_itself_is_loaded(tmp_path: Path) -> None:
    tandem = [peer for peer in peers(None) if peer.name == "Tandem"]
    (found,), text = run(tandem, tmp_path)
    assert [sample.operations for sample in found.samples["take+ack"]] == [80, 80]
    assert "wal.mode write" in text


def test_a_client_that_is_missing_is_named() -> None:
    try:
        peer_loads.package("no_such_client", "no-such-client")
    except PeerMissing as error:
        assert str(error) == "the Python package no-such-client is missing"
