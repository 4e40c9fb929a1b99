"""etcd as it is run: members that go, stand still and come back, what fills up, who may log in."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import web

from tandemq_server.arbiters.base import ArbiterRefused, SwapLost, Unreachable
from tandemq_server.arbiters.endpoints import client_tls
from tandemq_server.arbiters.etcd import Etcd
from tandemq_server.statemachine.seat import SeatReading
from tests.arbiters.arbiter_servers import EtcdCluster
from tests.arbiters.arbiter_worlds import a_seat

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


@contextlib.asynccontextmanager
async def client_of(urls: tuple[str, ...], cluster: str = "", **options: object):
    client = Etcd(urls, cluster or "c" + secrets.token_hex(6), **options)  # type: ignore[arg-type]
    try:
        yield client
    finally:
        await client.close()


async def in_time(call: Callable[[], Awaitable[SeatReading]], seconds: float) -> SeatReading:
    """Ask until there is an answer."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return await call()
        except Unreachable:
            assert asyncio.get_running_loop().time() < end


async def test_old_data_are_there_after_a_restart(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, 1) as etcd:
        async with client_of(etcd.urls) as client:
            first = await client.swap(0, a_seat())
            await client.keep_alive("a")
            watch = client.watch(first.revision)
            waiting = asyncio.create_task(anext(watch))
            for number in (signal.SIGTERM, signal.SIGKILL):
                etcd.members[0].end(number)
                with pytest.raises(Unreachable):
                    await client.read()
                with pytest.raises(Unreachable):
                    await waiting
                await asyncio.to_thread(etcd.start)
                assert await client.read() == first
                waiting = asyncio.create_task(anext(client.watch(first.revision)))
                # Its lease outlived the restart, or is made anew.
                await client.keep_alive("a")
                assert await client.alive() == {"a"}
            second = await client.swap(first.revision, a_seat(2))
            assert await asyncio.wait_for(waiting, 5) == second


@pytest.mark.parametrize("how", ["killed", "stands still"])
async def test_the_leader_goes_and_another_one_goes_on(tmp_path: Path, how: str) -> None:
    with EtcdCluster(tmp_path, 3) as etcd:
        # What is asked goes to the leader first: the way that is about to fail.
        urls = etcd.urls[etcd.leader() :] + etcd.urls[: etcd.leader()]
        async with client_of(urls) as client, client_of(urls, client_cluster(client)) as other:
            first = await client.swap(0, a_seat())
            watch = other.watch(first.revision)
            waiting = asyncio.create_task(anext(watch))
            await client.keep_alive("a")
            leader = etcd.members[etcd.leader()]
            if how == "killed":
                leader.end(signal.SIGKILL)
            else:
                leader.pause()
            second = await in_time(lambda: client.swap(first.revision, a_seat(2)), 10)
            with contextlib.suppress(Unreachable):
                assert await asyncio.wait_for(waiting, 10) == second
            assert await in_time(client.read, 5) == second
            await client.keep_alive("a")
            assert await client.alive() == {"a"}
            if how == "stands still":
                leader.go_on()
                # It still takes itself for the leader; it must not be believed.
                async with client_of(urls[:1], client_cluster(client)) as behind:
                    assert await in_time(behind.read, 5) == second


def client_cluster(client: Etcd) -> str:
    return client._seat_key.split("/")[2]


async def test_without_a_majority_nothing_is_promised(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, 3) as etcd:
        async with client_of(etcd.urls) as client:
            first = await client.swap(0, a_seat())
            for member in etcd.members[1:]:
                member.end(signal.SIGKILL)
            with pytest.raises(Unreachable):
                await client.read()
            seat = a_seat(2)
            with pytest.raises(Unreachable):
                await client.swap(first.revision, seat)
            for member in etcd.members[1:]:
                member.start()
            found = await in_time(client.read, 15)
            # Lost, or carried out late: never anything else.
            assert found == first or found.seat == seat


async def test_compaction_hides_no_seat_from_a_watch(etcd_one: EtcdCluster) -> None:
    async with (
        client_of(etcd_one.urls) as client,
        client_of(etcd_one.urls, client_cluster(client)) as other,
    ):
        reading = first = await client.swap(0, a_seat(1))
        for no in range(2, 6):
            reading = await client.swap(reading.revision, a_seat(no))
        etcd_one.post("/v3/kv/compaction", {"revision": str(reading.revision), "physical": True})
        # What it begins from was thrown away.
        watch = other.watch(first.revision)
        assert await asyncio.wait_for(anext(watch), 5) == reading
        waiting = asyncio.create_task(anext(watch))
        await asyncio.sleep(0.3)
        reading = await client.swap(reading.revision, a_seat(6))
        assert await asyncio.wait_for(waiting, 5) == reading
        etcd_one.post("/v3/kv/compaction", {"revision": str(reading.revision)})
        assert (await client.swap(reading.revision, a_seat(7))).seat is not None


async def test_what_fills_the_database_is_known_to_be_there(tmp_path: Path) -> None:
    """etcd carries out the write that fills it and answers with an error all the same."""
    with EtcdCluster(tmp_path, 1, "--quota-backend-bytes", "65536") as etcd:
        async with client_of(etcd.urls) as client:
            reading = SeatReading(None, 0)
            await client.keep_alive("a")
            for no in range(1, 400):
                seat = a_seat(no, by="x" * 500)
                try:
                    reading = await client.swap(reading.revision, seat)
                except ArbiterRefused as refused:
                    assert "space exceeded" in str(refused)
                    assert await client.read() == reading
                    break
                assert await client.read() == reading == SeatReading(seat, reading.revision)
            else:
                raise AssertionError("never full")
            # Who has the seat and lives is still told, and a lease that is there still kept.
            await client.keep_alive("a")
            assert await client.alive() == {"a"}
            with pytest.raises(ArbiterRefused, match="space exceeded"):
                await client.keep_alive("b")
            # As the docs say: throw away, defragment, disarm.
            head = client_head(etcd)
            etcd.post("/v3/kv/compaction", {"revision": str(head), "physical": True})
            etcd.post("/v3/maintenance/defragment", {})
            alarm = etcd.post("/v3/maintenance/alarm", {})["alarms"][0]
            etcd.post("/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})
            assert (await client.swap(reading.revision, a_seat(no))).seat is not None


@contextlib.asynccontextmanager
async def lying(etcd: EtcdCluster, lies: list[dict[str, object]]) -> AsyncIterator[str]:
    """The URL of an etcd that carries out transactions and answers the next ones with errors."""
    session = aiohttp.ClientSession()

    async def forward(request: web.Request) -> web.Response:
        async with session.post(etcd.urls[0] + request.path, data=await request.read()) as answer:
            body, status = await answer.json(), answer.status
        if request.path == "/v3/kv/txn" and lies:
            body = lies.pop(0)
            status = 503
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_post("/{path:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await session.close()


FULL = {"error": "etcdserver: mvcc: database space exceeded", "code": 8}
NO_LEADER = {"error": "etcdserver: leader changed", "code": 14}
TIMED_OUT = {"message": "etcdserver: request timed out", "code": 14}


@pytest.mark.parametrize("lies", [[FULL], [NO_LEADER], [TIMED_OUT], [NO_LEADER, FULL]])
async def test_an_error_after_the_deed_is_no_refusal(
    etcd_one: EtcdCluster, lies: list[dict[str, object]]
) -> None:
    async with lying(etcd_one, list(lies)) as url, client_of((url,)) as client:
        seat = a_seat()
        won = await client.swap(0, seat)
        assert won.seat == seat
        assert await client.read() == won


@pytest.mark.parametrize("lies", [[FULL], [NO_LEADER]])
async def test_an_error_where_another_was_first_is_a_swap_lost(
    etcd_one: EtcdCluster, lies: list[dict[str, object]]
) -> None:
    async with lying(etcd_one, list(lies)) as url, client_of((url,)) as client:
        async with client_of(etcd_one.urls, client_cluster(client)) as other:
            first = await other.swap(0, a_seat(master="b", partner="a"))
        with pytest.raises(SwapLost) as lost:
            await client.swap(0, a_seat())
        assert lost.value.reading == first


def client_head(etcd: EtcdCluster) -> int:
    return int(etcd.post("/v3/maintenance/status", {})["header"]["revision"])


async def test_a_copy_brought_back_is_told_by_name(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "now", 1) as etcd:
        async with client_of(etcd.urls) as client:
            first = await client.swap(0, a_seat(1))
            second = await client.swap(first.revision, a_seat(2))
            etcd.post(
                "/v3/kv/deleterange", {"key": base64.b64encode(client._seat_key.encode()).decode()}
            )
            assert await client.read() == SeatReading(None, 0)
            with pytest.raises(ArbiterRefused, match="older copy"):
                await asyncio.wait_for(anext(client.watch(second.revision)), 5)


async def test_something_else_at_the_key_is_refused(etcd_one: EtcdCluster) -> None:
    async with client_of(etcd_one.urls) as client:
        key = base64.b64encode(client._seat_key.encode()).decode()
        for value in (b"rubbish", b"[1]", b'{"no": "1"}', b"\xff\xfe"):
            etcd_one.post("/v3/kv/put", {"key": key, "value": base64.b64encode(value).decode()})
            with pytest.raises(ArbiterRefused, match="the value at"):
                await client.read()
            with pytest.raises(ArbiterRefused, match="the value at"):
                await client.swap(0, a_seat())


# -- who may --------------------------------------------------------------------------------------


def with_users(etcd: EtcdCluster) -> None:
    for path, body in (
        ("/v3/auth/user/add", {"name": "root", "password": "of-all"}),
        ("/v3/auth/user/grant", {"user": "root", "role": "root"}),
        ("/v3/auth/user/add", {"name": "tandemq", "password": "a-password"}),
        ("/v3/auth/role/add", {"name": "seats"}),
        (
            "/v3/auth/role/grant",
            {
                "name": "seats",
                "perm": {
                    "permType": "READWRITE",
                    "key": base64.b64encode(b"/client/tandemq/").decode(),
                    "range_end": base64.b64encode(b"/tandemq0").decode(),
                },
            },
        ),
        ("/v3/auth/user/grant", {"user": "tandemq", "role": "seats"}),
        ("/v3/auth/user/add", {"name": "nobody", "password": "a-password"}),
        ("/v3/auth/enable", {}),
    ):
        etcd.post(path, body)


async def test_passwords_and_a_token_that_is_forgotten(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, 1) as etcd:
        with_users(etcd)
        good = {"user": "tandemq", "password": "a-password"}
        async with client_of(etcd.urls, "jobs", **good) as client:
            first = await client.swap(0, a_seat())
            await client.keep_alive("a")
            assert await client.alive() == {"a"}
            # Tokens are in its memory only.
            etcd.members[0].end()
            await asyncio.to_thread(etcd.start)
            second = await client.swap(first.revision, a_seat(2))
            waiting = asyncio.create_task(anext(client.watch(second.revision)))
            await asyncio.sleep(0.3)
            third = await client.swap(second.revision, a_seat(3))
            assert await asyncio.wait_for(waiting, 5) == third
            with pytest.raises(SwapLost):
                await client.swap(second.revision, a_seat(3))
        for options, said in (
            ({"user": "tandemq", "password": "wrong"}, "tandemq cannot log in"),
            ({"user": "stranger", "password": "a-password"}, "stranger cannot log in"),
            ({"user": "nobody", "password": "a-password"}, "permission denied"),
            ({}, "user name is empty"),
        ):
            async with client_of(etcd.urls, "jobs", **options) as client:
                for call in (client.read, client.alive, lambda one=client: one.keep_alive("a")):
                    with pytest.raises(ArbiterRefused, match=said):
                        await call()
                with pytest.raises(ArbiterRefused, match=said):
                    await client.swap(third.revision, a_seat(4))
        async with client_of(etcd.urls, "jobs", **good) as client:
            assert await client.read() == third


async def test_a_user_is_no_hindrance_where_nobody_logs_in(etcd_one: EtcdCluster) -> None:
    async with client_of(etcd_one.urls, user="tandemq", password="a-password") as client:
        assert (await client.swap(0, a_seat())).revision > 0


async def test_certificates_of_both_sides(tmp_path: Path) -> None:
    ours, theirs = trustme.CA(), trustme.CA()
    files = {}
    for name, ca in (("server", ours), ("client", ours), ("stranger", theirs)):
        issued = ca.issue_cert("127.0.0.1", "localhost")
        files[name] = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(files[name][0])
        issued.private_key_pem.write_to_path(files[name][1])
    ours.cert_pem.write_to_path(tmp_path / "ca.pem")
    flags = (
        *("--cert-file", str(files["server"][0]), "--key-file", str(files["server"][1])),
        *("--client-cert-auth", "--trusted-ca-file", str(tmp_path / "ca.pem")),
    )
    with EtcdCluster(tmp_path / "etcd", 1, tls=flags) as etcd:
        tls = client_tls(tmp_path / "ca.pem", *files["client"])
        async with client_of(etcd.urls, "jobs", tls=tls) as client:
            first = await in_time(client.read, 15)
            assert first == SeatReading(None, 0)
            first = await client.swap(0, a_seat())
            waiting = asyncio.create_task(anext(client.watch(first.revision)))
            await asyncio.sleep(0.3)
            second = await client.swap(first.revision, a_seat(2))
            assert await asyncio.wait_for(waiting, 5) == second
            await client.keep_alive("a")
            assert await client.alive() == {"a"}
        for tls, said in (
            (client_tls(None, *files["client"]), "certificate"),
            (client_tls(tmp_path / "ca.pem"), "(?i)certificate"),
            (client_tls(tmp_path / "ca.pem", *files["stranger"]), "(?i)certificate|unknown"),
        ):
            async with client_of(etcd.urls, "jobs", tls=tls) as client:
                with pytest.raises(Unreachable, match=said):
                    await client.swap(second.revision, a_seat(3))
    with pytest.raises(ArbiterRefused, match="cannot be used"):
        client_tls(tmp_path / "not-there.pem")
    assert isinstance(client_tls(None), ssl.SSLContext)


async def test_what_is_no_etcd_is_said(tmp_path: Path) -> None:
    async def other(_request: web.Request) -> web.Response:
        return web.Response(text="Hello")

    app = web.Application()
    app.add_routes([web.post("/v3/kv/range", other)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with client_of((f"http://127.0.0.1:{port}",)) as client:
            with pytest.raises(Unreachable, match="no JSON object"):
                await client.read()
            with pytest.raises(ArbiterRefused, match=r"no etcd of version 3\.4"):
                await client.swap(0, a_seat())
    finally:
        await runner.cleanup()
