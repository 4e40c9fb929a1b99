"""Calls of etcd's JSON gateway (3.4 and newer): bodies, tokens, and what an error means.

Here: one request to one endpoint. Must not be here: which endpoint, or what a seat is.
Keys and values are base64, 64-bit numbers come as text.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp

from tandemq_server.arbiters.base import ANSWER_MAX, ArbiterRefused, as_json
from tandemq_server.arbiters.endpoints import NoAnswer, body_of, new_session

Json = dict[str, Any]

#: gRPC's codes with which etcd says no before anything is proposed to its members.
_INVALID, _NOT_FOUND, _DENIED, _EXHAUSTED, _PRECONDITION = 3, 5, 7, 8, 9
_UNIMPLEMENTED, _UNAUTHENTICATED = 12, 16
_CLEAR = frozenset({_INVALID, _NOT_FOUND, _DENIED, _PRECONDITION, _UNIMPLEMENTED, _UNAUTHENTICATED})
_OLD_TOKEN = ("invalid auth token", "auth: revision in header is old")
_AUTH_OFF = "authentication is not enabled"
_TEXT_MAX = 200
_SILENT_S = 1.0


class No(Exception):
    """etcd said no. str(): its words. `clear`: whether nothing can have been changed.

    A full database is not clear: the write that fills it is made and then answered with an error.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(" ".join(text.split())[:_TEXT_MAX] or f"code {code}")
        self.code = code
        self.clear = code in _CLEAR

    @property
    def lease_gone(self) -> bool:
        return self.code == _NOT_FOUND


class Calls:
    """One client of one cluster: its connections and its token."""

    def __init__(self, user: str | None, password: str | None, tls: ssl.SSLContext | None) -> None:
        self._user = user
        self._password = password
        self._tls = tls
        self._token: str | None = None
        self._renewing = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None

    async def call(self, url: str, path: str, body: Json) -> Json:
        """One call with one answer. Raises `No`, `NoAnswer` and what aiohttp does."""
        token = await self._token_of(url)
        try:
            return await self._post(url, path, body, token)
        except No as no:
            if token is None or not any(text in str(no) for text in _OLD_TOKEN):
                raise
        return await self._post(url, path, body, await self._token_of(url, token))

    async def stream(
        self, url: str, path: str, body: Json, begin_s: float
    ) -> AsyncGenerator[Json | None, None]:
        """The answers of a call that goes on; None now and then, when nothing came for a while.

        begin_s: how long it may take to begin. Raises `No`, `NoAnswer`, TimeoutError and what
        aiohttp does; ends when the other side does. To be closed.
        """
        async with asyncio.timeout(begin_s):
            token = await self._token_of(url)
            response = await self._open().post(
                url + path, data=as_json(body), headers=_headers(token), allow_redirects=False
            )
        try:
            if response.status != 200:
                raise NoAnswer(f"HTTP {response.status}")
            rest = b""
            while True:
                try:
                    async with asyncio.timeout(_SILENT_S):
                        part = await response.content.readany()
                except TimeoutError:
                    yield None
                    continue
                if not part:
                    return
                *lines, rest = (rest + part).split(b"\n")
                if len(rest) > ANSWER_MAX:
                    raise NoAnswer(f"an answer is longer than {ANSWER_MAX} bytes")
                for line in lines:
                    if line.strip():
                        yield _result(line)
        finally:
            response.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = new_session(self._tls, {"Content-Type": "application/json"})
        return self._session

    async def _post(self, url: str, path: str, body: Json, token: str | None) -> Json:
        async with self._open().post(
            url + path, data=as_json(body), headers=_headers(token), allow_redirects=False
        ) as response:
            raw = await body_of(response)
            if response.status != 200:
                raise _no(response.status, raw)
            return _object(raw)

    async def _token_of(self, url: str, old: str | None = None) -> str | None:
        """The token in use, made anew if it is still `old`. None where none is needed."""
        if self._user is None:
            return None
        async with self._renewing:
            if self._token == old:
                body = {"name": self._user, "password": self._password or ""}
                try:
                    answer = await self._post(url, "/v3/auth/authenticate", body, None)
                except No as no:
                    if _AUTH_OFF in str(no):
                        return None
                    if no.clear:
                        raise ArbiterRefused(f"user {self._user} cannot log in: {no}") from None
                    raise
                self._token = str(answer.get("token", ""))
            return self._token


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def unb64(text: str) -> bytes:
    return base64.b64decode(text)


def number(value: Any) -> int:
    """A 64-bit number, left out when it is 0."""
    return int(value or 0)


def _headers(token: str | None) -> dict[str, str]:
    # Without the second a member that lost its leader would keep a watch and tell it nothing.
    headers = {"Grpc-Metadata-hasleader": "true"}
    return headers if token is None else {**headers, "Authorization": token}


def _object(raw: bytes) -> Json:
    try:
        value = json.loads(raw)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise NoAnswer("the answer is no JSON object")
    return value


def _result(line: bytes) -> Json:
    value = _object(line)
    if "error" in value:
        raise _said(value["error"] if isinstance(value["error"], dict) else value)
    result = value.get("result")
    return result if isinstance(result, dict) else {}


def _no(status: int, raw: bytes) -> No | NoAnswer:
    """What an answer other than 200 means."""
    try:
        return _said(_object(raw))
    except NoAnswer:
        if status == 404:
            return No("this is no etcd of version 3.4 or newer with its JSON gateway", _NOT_FOUND)
        return NoAnswer(f"HTTP {status}")


def _said(value: Json) -> No | NoAnswer:
    code = value.get("grpc_code", value.get("code"))
    text = str(value.get("message") or value.get("error") or "")
    no = No(text, code if isinstance(code, int) else 2)
    if no.clear or no.code == _EXHAUSTED:
        return no
    # No leader, a time-out within etcd, a member that stops: it may be done yet.
    return NoAnswer(str(no))
