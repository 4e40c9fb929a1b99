"""The witness (`tandemq witness`) as the arbiter: its HTTP calls from a node's side."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp

from tandemq_server.arbiters.base import (
    ArbiterRefused,
    SwapLost,
    Unreachable,
    as_json,
    is_name,
    seat_map,
    seat_of,
    went_back,
)
from tandemq_server.arbiters.endpoints import Endpoints, NoAnswer, body_of, new_session
from tandemq_server.statemachine.seat import Seat, SeatReading

Json = dict[str, Any]
#: How long the witness holds back an answer to a watch that has no news.
WATCH_S = 2.0
_TEXT_MAX = 200


class Witness:
    """See `base.Arbiter`. Close it when done."""

    def __init__(
        self,
        url: str,
        cluster: str,
        *,
        ttl_s: float = 3.0,
        timeout_s: float = 1.0,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._endpoints = Endpoints("witness", (url.rstrip("/"),), timeout_s)
        self._path = f"/v1/{cluster}"
        self._ttl_s = ttl_s
        self._tls = tls
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    @property
    def name(self) -> str:
        return self._endpoints.name

    async def read(self) -> SeatReading:
        return self._reading(await self._ask("GET", "/seat"))

    async def swap(self, revision: int, seat: Seat) -> SeatReading:
        # The witness knows by it that it has carried out this very request already.
        swap = secrets.token_hex(16)
        body = {"revision": revision, "seat": seat_map(seat), "swap": swap}
        loose = False

        async def one(url: str) -> tuple[int, Json]:
            nonlocal loose
            before, loose = loose, True
            try:
                status, answer = await self._call(url, "PUT", "/seat", body)
            except aiohttp.ClientConnectorError:
                loose = before  # Nothing was sent.
                raise
            except ArbiterRefused as refused:
                if before:
                    raise Unreachable(f"{self.name}: an earlier attempt was not answered") from None
                raise refused
            return status, answer

        status, answer = await self._endpoints.ask(one)
        if status == 409:
            raise SwapLost(self._reading(answer))
        return self._reading(answer)

    async def keep_alive(self, node: str) -> None:
        await self._ask("PUT", f"/alive/{node}?ttl={self._ttl_s:g}")

    async def alive(self) -> frozenset[str]:
        answer = await self._ask("GET", "/alive")
        nodes = answer.get("alive")
        if not isinstance(nodes, list) or not all(is_name(node) for node in nodes):
            raise ArbiterRefused(f"{self.name}: the answer is not a witness's")
        return frozenset(nodes)

    async def watch(self, revision: int) -> AsyncGenerator[SeatReading, None]:
        wait_s = 0.0
        while True:
            reading = await self._watched(revision, wait_s)
            if reading.revision < revision:
                raise went_back(self.name, reading.revision, revision)
            wait_s = WATCH_S
            if reading.revision > revision:
                revision = reading.revision
                yield reading

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _watched(self, revision: int, wait_s: float) -> SeatReading:
        """What one long question brings. A way that broke under it is tried once more, quickly."""
        path = f"/watch?revision={revision}&wait={wait_s:g}"
        try:
            async with asyncio.timeout(wait_s + self._endpoints.timeout_s):
                _, answer = await self._call(self._endpoints.url, "GET", path)
        except (TimeoutError, aiohttp.ClientError, OSError, NoAnswer):
            answer = await self._ask("GET", "/seat")
        return self._reading(answer)

    async def _ask(self, method: str, path: str) -> Json:
        _, answer = await self._endpoints.ask(lambda url: self._call(url, method, path))
        return answer

    async def _call(
        self, url: str, method: str, path: str, body: Json | None = None
    ) -> tuple[int, Json]:
        """(200 or 409, the answer). Raises `ArbiterRefused`, `NoAnswer` and what aiohttp does."""
        if self._session is None:
            self._session = new_session(self._tls, self._headers)
        async with self._session.request(
            method,
            url + self._path + path,
            data=None if body is None else as_json(body),
            headers={} if body is None else {"Content-Type": "application/json"},
            allow_redirects=False,
        ) as response:
            raw = await body_of(response)
            try:
                answer = json.loads(raw)
            except ValueError:
                answer = None
            known = isinstance(answer, dict)
            if known and (response.status == 200 or (response.status == 409 and body)):
                return response.status, answer
            said = str(answer.get("detail", "")) if known else ""
            text = " ".join(said.split())[:_TEXT_MAX] or f"HTTP {response.status}, not a witness's"
            clear = 400 <= response.status < 500 and response.status != 408 and known
            if clear or response.status == 404:
                raise ArbiterRefused(f"{self.name}: {text}")
            raise NoAnswer(text)

    def _reading(self, answer: Json) -> SeatReading:
        revision, seat = answer.get("revision"), answer.get("seat")
        try:
            if type(revision) is not int or revision < 0 or (seat is None) != (revision == 0):
                raise ValueError("has no revision that fits")
            return SeatReading(None if seat is None else seat_of(seat), revision)
        except ValueError as error:
            raise ArbiterRefused(f"{self.name}: the answer {error}") from None
