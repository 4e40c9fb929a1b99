"""The security matrix: each way of being refused, and that refused requests change nothing."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import ClientConnectionError

from tandemq_server.admin.security import AdminConfig, AdminRefused, host_of
from tests.admin.harness import TOKEN, Api, api

pytestmark = pytest.mark.asyncio

FLIP: tuple[str, str, dict[str, Any]] = ("PUT", "/v1/read_only", {"read_only": True})
CHANGES = [
    FLIP,
    ("POST", "/v1/switchover", {"to": "b"}),
    ("POST", "/v1/solo", {}),
    ("POST", "/v1/snapshot", {}),
    ("POST", "/v1/tasks", {"tube": "jobs", "action": "delete", "state": "ready"}),
    ("POST", "/v1/tubes", {"tube": "jobs", "action": "pause"}),
]
READS = [
    *("/v1/status", "/v1/cluster", "/v1/events", "/metrics"),
    *("/v1/tubes", "/v1/tasks", "/v1/sessions", "/v1/history", "/v1/switchover"),
]
BOTH = {"/v1/tasks", "/v1/tubes", "/v1/switchover"}
PUBLIC = ["/primary", "/replica", "/health", "/liveness", "/readiness", "/openapi.json"]


def untouched(node: Api) -> bool:
    return not node.backend.calls and node.backend.now.state == "RUNNING"


# -- what may listen at all ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "node-a.example"])
async def test_off_loopback_without_token_or_tls_is_refused(host: str, tls: ssl.SSLContext) -> None:
    for token, context, word in ((None, tls, "token"), (TOKEN, None, "TLS"), (None, None, "token")):
        with pytest.raises(AdminRefused, match=word) as refused:
            AdminConfig(host, 8081, token, context).check()
        assert "\n" not in str(refused.value)
        assert TOKEN not in str(refused.value)
    AdminConfig(host, 8081, TOKEN, tls).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
async def test_on_loopback_neither_is_needed(host: str) -> None:
    AdminConfig(host, 8081).check()


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "sixteen chars ok?", "ключ" * 8])
async def test_tokens_that_are_none(token: str) -> None:
    with pytest.raises(AdminRefused, match="token"):
        AdminConfig("127.0.0.1", 8081, token).check()


async def test_the_configuration_does_not_show_its_token() -> None:
    assert TOKEN not in repr(AdminConfig("127.0.0.1", 8081, TOKEN))


# -- Host ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8081", "127.0.0.1.evil.example", "localhost.evil.example", "",
     "192.0.2.1", "[::2]", "127.0.0.1@evil.example", "evil.example#127.0.0.1", "[::1", "a b"],
)  # fmt: skip
async def test_foreign_hosts_are_refused(host: str) -> None:
    async with api() as node:
        for path in (*READS, *PUBLIC, "/nowhere"):
            problem = await node.refused("GET", path, headers={"Host": host})
            assert (problem["status"], problem["type"]) == (403, "urn:tandemq:problem:foreign-host")
        method, path, body = FLIP
        assert (await node.refused(method, path, body, headers={"Host": host}))["status"] == 403
        assert untouched(node)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:1", "localhost.", "tandem-a:8081"]
)
async def test_own_names_are_served(host: str) -> None:
    async with api(hosts=("Tandem-A",)) as node:
        assert (await node.ask("GET", "/v1/status", headers={"Host": host}))[0] == 200


async def test_the_address_a_connection_came_in_on_is_our_own() -> None:
    async with api(host="127.0.0.2") as node:
        reader, writer = await asyncio.open_connection("127.0.0.2", node.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.2\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_missing_and_double_host_headers() -> None:
    async with api() as node:
        ask = "GET {} HTTP/{}\r\n{}Connection: close\r\n\r\n"
        plain = await node.raw(ask.format("/primary", "1.0", "").encode())
        assert plain.startswith(b"HTTP/1.0 200")
        for path, version, headers in (
            ("/v1/status", "1.0", ""),
            ("/primary", "1.1", ""),
            ("/primary", "1.1", "Host: localhost\r\nHost: evil.example\r\n"),
        ):
            answer = await node.raw(ask.format(path, version, headers).encode())
            assert answer.split(b" ", 2)[1] in (b"400", b"403")


async def test_host_headers_are_read_as_they_should() -> None:
    assert host_of("[::ffff:127.0.0.1]:80") == "127.0.0.1"
    assert host_of("[0:0:0:0:0:0:0:1]") == "::1"
    assert host_of("A.Example.:8081") == "a.example"
    for wrong in ("", ":80", "a:b", "[::1]x", "a/b", "u@h", "[x]"):
        assert host_of(wrong) is None


# -- token -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
     "Bearer wrong", f"Bearer {TOKEN} {TOKEN}", TOKEN, "Bearer \u00fc\u00fc\u00fc"],
)  # fmt: skip
async def test_without_the_token_nothing_but_probes_answers(authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    async with api(token=TOKEN) as node:
        for path in (*READS, "/nowhere"):
            status, problem, answered = await node.ask("GET", path, headers=headers)
            assert status == 401
            assert answered["WWW-Authenticate"].startswith('Bearer realm="tandemq"')
            assert TOKEN not in str(problem)
        for method, path, body in CHANGES:
            assert (await node.refused(method, path, body, headers=headers))["status"] == 401
        for path in PUBLIC:
            assert (await node.ask("GET", path, headers=headers))[0] in (200, 503)
        assert untouched(node)
        assert all(TOKEN not in line for line in node.lines)


async def test_with_the_token_all_is_served() -> None:
    async with api(token=TOKEN) as node:
        for scheme in ("Bearer", "bearer"):
            headers = {"Authorization": f"{scheme} {TOKEN}"}
            for path in READS[:2]:
                assert (await node.ask("GET", path, headers=headers))[0] == 200
        assert (await node.ask(*FLIP, headers=headers))[0] == 200


async def test_two_authorization_headers_are_none() -> None:
    async with api(token=TOKEN) as node:
        line = f"Authorization: Bearer {TOKEN}\r\n"
        head = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        answer = await node.raw((head + line + line + "\r\n").encode())
        assert answer.split(b" ", 2)[1] in (b"400", b"401")


async def test_refusals_are_logged_once_per_caller_and_cause() -> None:
    async with api(token=TOKEN) as node:
        for _ in range(5):
            await node.refused("GET", "/v1/status")
            await node.refused("GET", "/health", headers={"Host": "evil.example"})
        assert len(node.lines) == 2


# -- cross-site ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": ""}, {"Origin": "file://"},
     {"Origin": "http://127.0.0.1"}, {"Origin": "http://localhost:1"}, {"Origin": "http://[::1"},
     {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "new"}],
)  # fmt: skip
async def test_other_sites_change_nothing(headers: dict[str, str]) -> None:
    async with api() as node:
        for method, path, body in CHANGES:
            problem = await node.refused(method, path, body, headers=headers)
            assert (problem["status"], problem["type"]) == (403, "urn:tandemq:problem:cross-site")
        assert untouched(node)


async def test_our_own_pages_may_change() -> None:
    async with api() as node:
        headers = {"Origin": node.url, "Sec-Fetch-Site": "same-origin"}
        assert (await node.ask(*FLIP, headers=headers))[0] == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"},
     {"Content-Type": "multipart/form-data; boundary=x"}, {"Content-Type": "application/jsonx"},
     {"Content-Type": "application/json; charset=utf-16"},
     {"Content-Type": "application/json", "Content-Encoding": "gzip"}],
)  # fmt: skip
async def test_what_a_form_can_post_is_415(headers: dict[str, str]) -> None:
    async with api() as node:
        for method, path, _ in CHANGES:
            problem = await node.refused(
                method,
                path,
                data=b'{"read_only": true, "to": "b"}',
                headers=headers,
                skip_auto_headers=["Content-Type"],
            )
            assert problem["status"] == 415
        assert untouched(node)


async def test_preflights_are_not_answered_with_leave() -> None:
    async with api() as node:
        asks = {"Origin": "http://evil.example", "Access-Control-Request-Method": "PUT"}
        status, _, headers = await node.ask("OPTIONS", "/v1/read_only", headers=asks)
        assert status == 405
        assert not [name for name in headers if name.startswith("Access-Control")]


# -- methods, bodies -------------------------------------------------------------------------------


async def test_no_change_by_get_and_no_method_but_the_right_one() -> None:
    async with api() as node:
        for right, path, _ in CHANGES:
            reads = {"GET", "HEAD"} if path in BOTH else set()
            for method in {"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"} - {right} - reads:
                status, _, headers = await node.ask(method, path)
                assert status == 405
                assert set(headers["Allow"].split(", ")) == {right} | reads
        for path in {*READS, *PUBLIC} - BOTH:
            assert (await node.refused("POST", path, {}))["status"] == 405
        assert (await node.refused("GET", "/v2/status"))["status"] == 404
        assert (await node.refused("GET", "/v1/status/"))["status"] == 404
        assert untouched(node)


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"{'read_only': true}", b'{"read_only": NaN}', b"\xff\xfe", b"[" * 16_000,
     b'{"read_only": true, "read_only": false}', b'{"read_only": true} x', b'{"a": Infinity}'],
    ids=lambda raw: repr(raw[:20]),
)  # fmt: skip
async def test_malformed_json_is_400(raw: bytes) -> None:
    async with api() as node:
        problem = await node.refused("PUT", "/v1/read_only", data=raw, headers=JSON)
        assert (problem["status"], problem["type"]) == (400, "urn:tandemq:problem:malformed-json")
        assert untouched(node)


@pytest.mark.parametrize(
    ("method", "path", "body", "fields"),
    [
        ("PUT", "/v1/read_only", {}, ["read_only"]),
        ("PUT", "/v1/read_only", {"read_only": "true"}, ["read_only"]),
        ("PUT", "/v1/read_only", {"read_only": 1}, ["read_only"]),
        ("PUT", "/v1/read_only", {"read_only": None, "force": 0}, ["read_only", "force"]),
        ("PUT", "/v1/read_only", {"read_only": True, "froce": True}, ["froce"]),
        ("PUT", "/v1/read_only", [True], ["body"]),
        ("PUT", "/v1/read_only", "true", ["body"]),
        ("POST", "/v1/switchover", {}, ["to"]),
        ("POST", "/v1/switchover", {"to": ""}, ["to"]),
        ("POST", "/v1/switchover", {"to": "x" * 64}, ["to"]),
        ("POST", "/v1/switchover", {"to": 3, "dry_run": "no"}, ["to", "dry_run"]),
        ("POST", "/v1/solo", {"force": True}, ["force"]),
        ("POST", "/v1/snapshot", [], ["body"]),
    ],
)
async def test_wrong_fields_are_422_by_name(
    method: str, path: str, body: Any, fields: list[str]
) -> None:
    async with api() as node:
        problem = await node.refused(method, path, body)
        assert problem["status"] == 422
        assert [error["field"] for error in problem["errors"]] == fields
        assert all("accepted" in error for error in problem["errors"])
        assert untouched(node)


async def test_large_and_slow_bodies() -> None:
    async with api(body_s=0.02) as node:
        large = b'{"read_only": true, "x": "' + b"x" * 20_000 + b'"}'
        problem = await node.refused("PUT", "/v1/read_only", data=large, headers=JSON)
        assert problem["status"] == 413
        head = (
            b"PUT /v1/read_only HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 19\r\n\r\n{"
        )
        answer = await node.raw(head)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"application/problem+json" in answer
        assert untouched(node)


async def test_garbage_is_refused_and_harms_nobody() -> None:
    async with api() as node:
        for garbage in (b"\x00" * 100, b"GET / HTTP/9.9\r\n\r\n", b"\xce\x00\x00\x00\x01\x81" * 50):
            answer = await node.raw(garbage, eof=True)
            assert not answer or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
        assert (await node.ask("GET", "/health"))[0] == 200


async def test_a_probe_gets_in_however_many_sit_there_and_say_nothing() -> None:
    async with api(connections_max=3) as node:
        held = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(12)]
        for _ in range(5):
            assert (await node.ask("GET", "/health"))[0] == 200
        assert len(node.server._http.runner.server.connections) <= 4  # type: ignore[union-attr]
        assert await asyncio.wait_for(held[0][0].read(), 5) == b""
        for _, writer in held:
            writer.close()


async def test_connections_that_all_ask_are_let_finish() -> None:
    async with api(connections_max=2, body_s=5.0) as node:
        head = (
            b"PUT /v1/read_only HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 19\r\n\r\n"
        )
        held = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(2)]
        for _, writer in held:
            writer.write(head)
        while len(node.server._http.room._busy) < 2:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        with pytest.raises(ClientConnectionError):
            await node.ask("GET", "/health")
        for reader, writer in held:
            writer.write(b'{"read_only": true}')
            assert (await reader.readline()).startswith(b"HTTP/1.1 20")
            writer.close()


async def test_places_of_connections_that_ended_are_free_again() -> None:
    async with api(connections_max=2) as node:
        for _ in range(20):
            assert (await node.ask("GET", "/health"))[0] == 200
        room = node.server._http.room
        assert room is not None
        assert len(room._silent) + len(room._idle) + len(room._busy) <= 2


async def test_who_asks_nothing_is_closed() -> None:
    async with api(ask_s=0.05) as node:
        silent, _writer = await asyncio.open_connection("127.0.0.1", node.port)
        slow, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost:")
        assert await asyncio.wait_for(silent.read(), 5) == b""
        assert await asyncio.wait_for(slow.read(), 5) == b""
        assert (await node.ask("GET", "/health"))[0] == 200
        _writer.close()
        writer.close()


# -- TLS -------------------------------------------------------------------------------------------


async def test_tls_with_a_token(authority: trustme.CA, tls: ssl.SSLContext, tmp_path: Path) -> None:
    from tandemq_server.admin.client import AdminClient, AdminError, AdminUnreachable

    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with api(token=TOKEN, tls=tls) as node:
        address = f"127.0.0.1:{node.port}"
        good = AdminClient(address, TOKEN, trusting)
        assert (await asyncio.to_thread(good.status))["name"] == "a"
        with pytest.raises(AdminError, match="Bearer TOKEN") as refused:
            await asyncio.to_thread(AdminClient(address, None, trusting).status)
        assert refused.value.kind == "unauthorized"
        for wrong in (AdminClient(address, TOKEN), AdminClient(address, TOKEN, _distrusting())):
            with pytest.raises(AdminUnreachable):
                await asyncio.to_thread(wrong.status)


def _distrusting() -> ssl.SSLContext:
    return ssl.create_default_context()
