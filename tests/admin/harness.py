"""An admin API on a real socket in this process, and raw requests to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import ClientSession, TCPConnector
from jsonschema import Draft202012Validator

from tandemq_server.admin.openapi import document
from tandemq_server.admin.security import AdminConfig
from tandemq_server.admin.server import AdminServer
from tests.admin.fake_backend import FakeBackend

TOKEN = "a-token-of-some-length"
DOCUMENT = document()


class Api:
    """What a test holds of a running API."""

    def __init__(self, server: AdminServer, backend: FakeBackend, port: int) -> None:
        self.server = server
        self.backend = backend
        self.port = port
        self.lines: list[str] = []
        self.session = ClientSession()
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def ask(
        self, method: str, path: str, body: Any = None, **more: Any
    ) -> tuple[int, Any, Any]:
        """(status, JSON, headers); the answer must fit the API's own document."""
        if body is not None:
            more["json"] = body
        async with self.session.request(method, self.url + path, **more) as response:
            text = await response.text()
            value = json.loads(text) if text and "json" in response.content_type else text
            check_documented(method, path, response.status, response.content_type, value)
            return response.status, value, response.headers

    async def refused(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The problem a request is answered with."""
        status, problem, headers = await self.ask(method, path, body, **more)
        assert headers["Content-Type"].startswith("application/problem+json")
        assert problem["status"] == status
        assert problem["instance"] == path
        return problem

    async def raw(self, request: bytes, *, eof: bool = False) -> bytes:
        """Bytes to a socket of its own, and all that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        if eof:
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer


def check_documented(method: str, path: str, status: int, media: str, value: Any) -> None:
    """Every answer of every test is one the document promises."""
    schema: Any = {"$ref": "#/components/schemas/Problem"}
    operation = DOCUMENT["paths"].get(path, {}).get(method.lower())
    if operation is None:
        assert status in (401, 403, 404, 405), (method, path, status)
    else:
        answer = operation["responses"].get(str(status))
        assert answer is not None or status == 404, (method, path, status)
        if answer is None:
            return
        if "$ref" in answer:
            answer = DOCUMENT["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        if method == "HEAD":
            assert not value
            return
        assert media in answer["content"], (method, path, status, media)
        schema = answer["content"][media]["schema"]
    if "json" in media and method != "HEAD":
        whole = {**schema, "components": DOCUMENT["components"]}
        Draft202012Validator(whole).validate(value)


@contextlib.asynccontextmanager
async def api(
    backend: FakeBackend | None = None,
    *,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    **config: Any,
) -> AsyncIterator[Api]:
    """A running API. `config` are fields of `AdminConfig`."""
    lines: list[str] = []
    backend = backend or FakeBackend()
    server = AdminServer(
        backend,
        AdminConfig(host, 0, tls=tls, **config),
        lambda text, error: lines.append(f"{text}: {error}" if error else text),
    )
    _, port = await server.start()
    held = Api(server, backend, port)
    held.lines = lines
    if tls is not None:
        held.scheme = "https"
        await held.session.close()
        held.session = ClientSession(connector=TCPConnector(ssl=False))
    try:
        yield held
    finally:
        await held.session.close()
        backend.bus.close()
        await server.stop()
