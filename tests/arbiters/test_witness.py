"""The witness as a process: what it refuses, what it survives, what it tells of itself."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trustme
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from tandemq_server.arbiters.base import ArbiterRefused, SwapLost, Unreachable
from tandemq_server.arbiters.endpoints import client_tls
from tandemq_server.arbiters.witness_client import Witness
from tandemq_server.statemachine.seat import SeatReading
from tests.arbiters.arbiter_servers import TANDEMQ, WitnessProcess, paused_for
from tests.arbiters.arbiter_worlds import a_seat
from tests.cluster.cluster_nodes import until

pytestmark = [pytest.mark.integration]
TOKEN = "a-token-of-some-length"
KILLS = int(os.environ.get("WITNESS_KILLS", "6"))


def call(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    tls: ssl.SSLContext | None = None,
    **headers: str,
) -> tuple[int, dict[str, Any]]:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10, context=tls) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def swap_body(revision: int = 0, **seat: Any) -> dict[str, Any]:
    return {
        "revision": revision,
        "seat": {**a_seat()._asdict(), **seat},
        "swap": secrets.token_hex(16),
    }


# -- what is refused -------------------------------------------------------------------------------

BAD_BODIES: dict[str, tuple[Any, int]] = {
    "nothing": (b"", 400),
    "no JSON": (b"{", 400),
    "no Unicode": (b'{"revision": "\xff"}', 400),
    "twice the same": (b'{"revision": 0, "revision": 0}', 400),
    "no number": (b'{"revision": NaN}', 400),
    "deep": (b"[" * 8000, 400),
    "a list": ([], 422),
    "no seat": ({"revision": 0, "swap": "0" * 32}, 422),
    "no swap": ({"revision": 0, "seat": a_seat()._asdict()}, 422),
    "something more": ({**swap_body(), "force": True}, 422),
    "a revision in text": ({**swap_body(), "revision": "0"}, 422),
    "a revision that is true": ({**swap_body(), "revision": True}, 422),
    "a revision below 0": (swap_body(-1), 422),
    "a revision too large": (swap_body(2**63), 422),
    "a seat that is text": ({**swap_body(), "seat": "a"}, 422),
    "a seat with more": (swap_body(colour="red"), 422),
    "no master": (swap_body(master=None), 422),
    "a master with a slash": (swap_body(master="a/b"), 422),
    "itself as partner": (swap_body(partner="a"), 422),
    "a short term": (swap_body(term_id="ab"), 422),
    "a number in text": (swap_body(no="1"), 422),
    "a time with a fraction": (swap_body(since=1.5), 422),
    "a line too long": (swap_body(by="x" * 501), 422),
    "two lines": (swap_body(by="x\ny"), 422),
    "a terminal's words": (swap_body(by="\x1b[2J"), 422),
    "too much": (b" " * 20_000, 413),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_refused_and_changes_nothing(witness: WitnessProcess, name: str) -> None:
    body, status = BAD_BODIES[name]
    cluster = "/v1/c" + secrets.token_hex(6)
    code, problem = call(witness.url, "PUT", cluster + "/seat", body)
    assert code == status, problem
    assert problem["detail"]
    assert "\n" not in problem["detail"]
    assert call(witness.url, "GET", cluster + "/seat") == (200, {"revision": 0, "seat": None})


def test_bad_names_and_numbers_are_refused(witness: WitnessProcess) -> None:
    for method, path in (
        ("GET", "/v1/a%2Fb/seat"),
        ("GET", "/v1/.hidden/seat"),
        ("GET", "/v1/" + "x" * 64 + "/seat"),
        ("GET", "/v1/j%C3%B6bs/seat"),
        ("GET", "/v1/a%0Ab/alive"),
        ("PUT", "/v1/jobs/alive/%20"),
        ("PUT", "/v1/jobs/alive/a?ttl=-1"),
        ("PUT", "/v1/jobs/alive/a?ttl=61"),
        ("PUT", "/v1/jobs/alive/a?ttl=nan"),
        ("GET", "/v1/jobs/watch?revision=x"),
        ("GET", "/v1/jobs/watch?revision=-1"),
        ("GET", "/v1/jobs/watch?wait=1e9"),
    ):
        code, problem = call(witness.url, method, path)
        assert code == 400, (path, problem)
    for method, path, status in (
        ("GET", "/v1/jobs", 404),
        ("GET", "/", 404),
        ("DELETE", "/v1/jobs/seat", 405),
        ("POST", "/v1/jobs/seat", 405),
    ):
        assert call(witness.url, method, path)[0] == status


def test_too_many_clusters_and_nodes_are_refused(tmp_path: Path) -> None:
    with WitnessProcess(tmp_path, "--clusters-max", "2") as process:
        for cluster in ("one", "two"):
            assert call(process.url, "PUT", f"/v1/{cluster}/seat", swap_body())[0] == 200
        code, problem = call(process.url, "PUT", "/v1/three/seat", swap_body())
        assert (code, problem["detail"]) == (422, "there are 2 clusters already, three is one more")
        assert call(process.url, "GET", "/v1/three/watch?revision=0&wait=0")[0] == 200
        codes = [call(process.url, "PUT", f"/v1/one/alive/n{n}")[0] for n in range(17)]
        assert codes == [200] * 16 + [422]


@contextlib.contextmanager
def secured(home: Path, *flags: str) -> Iterator[tuple[WitnessProcess, Path]]:
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1", "localhost")
    issued.cert_chain_pems[0].write_to_path(home / "cert.pem")
    issued.private_key_pem.write_to_path(home / "key.pem")
    ca.cert_pem.write_to_path(home / "ca.pem")
    (home / "token").write_text(TOKEN + "\n")
    with WitnessProcess(
        home / "witness",
        *("--token-file", str(home / "token")),
        *("--tls-cert", str(home / "cert.pem"), "--tls-key", str(home / "key.pem")),
        *flags,
        host="0.0.0.0",
    ) as process:
        yield process, home / "ca.pem"


def test_token_and_certificate_keep_strangers_out(tmp_path: Path) -> None:
    with secured(tmp_path) as (process, ca):
        tls = ssl.create_default_context(cafile=ca)
        for headers in (
            {},
            {"Authorization": "Bearer wrong-token-of-length"},
            {"Authorization": f"Basic {TOKEN}"},
            {"Authorization": "Bearer "},
        ):
            for method, path in (
                ("GET", "/v1/jobs/seat"),
                ("GET", "/metrics"),
                ("GET", "/nothing"),
            ):
                assert call(process.url, method, path, None, tls, **headers)[0] == 401
            code, _ = call(process.url, "PUT", "/v1/jobs/seat", swap_body(), tls, **headers)
            assert code == 401
        assert call(process.url, "GET", "/health", None, tls) == (200, {"status": "ok"})
        good = {"Authorization": f"Bearer {TOKEN}"}
        assert call(process.url, "GET", "/v1/jobs/seat", None, tls, **good)[1]["revision"] == 0
        request = urllib.request.Request(process.url + "/metrics", headers=good)
        with urllib.request.urlopen(request, timeout=10, context=tls) as answer:
            shown = answer.read().decode()
        ends = re.search(r'certificate_end_timestamp_seconds\{setting="tls.cert"\} (\S+)', shown)
        pem = (tmp_path / "cert.pem").read_bytes()
        issued = x509.load_pem_x509_certificate(pem).not_valid_after_utc
        assert ends is not None
        assert float(ends[1]) == issued.timestamp()
        asyncio.run(_secured_client(process.url, ca))
        assert TOKEN not in process.text()


async def _secured_client(url: str, ca: Path) -> None:
    client = Witness(url, "jobs", token=TOKEN, tls=client_tls(ca))
    first = await client.swap(0, a_seat())
    watch = client.watch(first.revision)
    waiting = asyncio.create_task(anext(watch))
    await asyncio.sleep(0.2)
    second = await client.swap(first.revision, a_seat(2))
    assert await asyncio.wait_for(waiting, 5) == second
    await client.keep_alive("a")
    assert await client.alive() == {"a"}
    await client.close()
    for options, error, said in (
        (
            {"token": "wrong-token-of-length", "tls": client_tls(ca)},
            ArbiterRefused,
            "not the witness's",
        ),
        ({"tls": client_tls(ca)}, ArbiterRefused, "Authorization"),
        ({"token": TOKEN, "tls": client_tls(None)}, Unreachable, "certificate"),
    ):
        client = Witness(url, "jobs", **options)  # type: ignore[arg-type]
        for ask in (client.read, client.alive, lambda one=client: one.swap(0, a_seat())):
            with pytest.raises(error, match=said):
                await ask()
        await client.close()


BAD_STARTS = {
    "off loopback without a token": ("--listen", "0.0.0.0:0"),
    "off loopback without TLS": ("--listen", "0.0.0.0:0", "--token-env", "WORD"),
    "no address": ("--listen", "here"),
    "a short token": ("--token-env", "SHORT"),
    "no such variable": ("--token-env", "NOT_SET"),
    "no such file": ("--token-file", "/nowhere/token"),
    "two tokens": ("--token-env", "WORD", "--token-file", "/nowhere/token"),
    "half of a certificate": ("--tls-cert", "/nowhere/cert.pem"),
    "no certificate": ("--tls-cert", "/nowhere/cert.pem", "--tls-key", "/nowhere/key.pem"),
    "no clusters": ("--clusters-max", "0"),
}


@pytest.mark.parametrize("name", BAD_STARTS)
def test_a_bad_start_is_one_line_and_makes_nothing(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [TANDEMQ, "witness", "--data-dir", str(tmp_path / "data"), *BAD_STARTS[name]],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "WORD": TOKEN, "SHORT": "short"},
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert sum(line.startswith("error") for line in done.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_a_directory_in_use_and_a_port_in_use(tmp_path: Path) -> None:
    with WitnessProcess(tmp_path) as process:
        for flags in (
            ("--data-dir", str(process.data), "--listen", "127.0.0.1:0"),
            ("--data-dir", str(tmp_path / "other"), "--listen", f"127.0.0.1:{process.port}"),
        ):
            done = subprocess.run(
                [TANDEMQ, "witness", *flags], capture_output=True, text=True, timeout=30
            )
            assert done.returncode == 1, done.stderr
            assert "in use" in done.stderr
        assert call(process.url, "GET", "/health")[0] == 200


def test_who_says_nothing_or_dribbles_keeps_nobody_out(tmp_path: Path) -> None:
    with WitnessProcess(tmp_path, "--connections-max", "8") as process:
        address = ("127.0.0.1", process.port)
        silent = [socket.create_connection(address) for _ in range(30)]
        dribbling = socket.create_connection(address)
        dribbling.sendall(b"PUT /v1/jobs/seat HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{")
        assert call(process.url, "GET", "/health")[0] == 200
        dribbling.settimeout(15)
        assert b" 408 " in dribbling.recv(1000)
        for one in (*silent, dribbling):
            one.close()


# -- what it survives ------------------------------------------------------------------------------


def test_kill_9_under_swaps_forgets_nothing(tmp_path: Path) -> None:
    """Whatever was answered is there after each kill, and what was not is there or is not."""
    chance = Random(16)
    with WitnessProcess(tmp_path) as process:
        answered = asyncio.run(_killed(process, chance, KILLS))
        assert answered > KILLS
        process.end()


async def _killed(process: WitnessProcess, chance: Random, kills: int) -> int:
    client = Witness(process.url, "jobs", timeout_s=0.3)
    last, tried, answered = SeatReading(None, 0), None, 0
    for _ in range(kills):
        kill = asyncio.get_running_loop().call_later(
            chance.uniform(0.02, 0.3), process.send, signal.SIGKILL
        )
        try:
            while True:
                tried = a_seat((last.seat.no if last.seat else 0) + 1)
                last = await client.swap(last.revision, tried)
                answered += 1
        except Unreachable:
            kill.cancel()
        process.end(signal.SIGKILL)
        await asyncio.to_thread(process.start)
        found = await client.read()
        assert found == last or found.seat == tried
        last = found
    await client.close()
    return answered


def test_a_restart_and_a_pause_are_no_sign_that_nodes_are_gone(tmp_path: Path) -> None:
    with WitnessProcess(tmp_path) as process:
        path = "/v1/jobs/alive"
        assert call(process.url, "PUT", path + "/a")[0] == 200
        paused_for(process, 3.5)
        assert call(process.url, "GET", path) == (200, {"alive": ["a"]})
        process.end(signal.SIGKILL)
        process.start()
        began = time.monotonic()
        assert call(process.url, "GET", path) == (200, {"alive": ["a"]})
        until(lambda: call(process.url, "GET", path) == (200, {"alive": []}), 8)
        assert time.monotonic() - began > 2.0
        # Gone is gone, the next time: as soon as that is on disk.
        time.sleep(1.0)
        process.end()
        process.start()
        assert call(process.url, "GET", path) == (200, {"alive": []})


def test_an_orderly_end_answers_who_waits(tmp_path: Path) -> None:
    with WitnessProcess(tmp_path) as process:
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=10)
        connection.request("GET", "/v1/jobs/watch?revision=0&wait=20")
        time.sleep(0.3)
        began = time.monotonic()
        process.send(signal.SIGTERM)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["revision"]) == (200, 0)
        assert process.end() == 0
        assert time.monotonic() - began < 4.0
        connection.close()


def test_a_disk_that_takes_no_more_ends_it(tmp_path: Path) -> None:
    """Nothing is answered that is not on disk; the next start finds what was."""
    with WitnessProcess(tmp_path) as process:
        _, won = call(process.url, "PUT", "/v1/jobs/seat", swap_body())
        process.end()
        size = (process.data / "witness").stat().st_size
        shell = f"ulimit -f {size // 1024 + 1}; trap '' XFSZ; exec \"$@\""
        command, process.command = process.command, ["bash", "-c", shell, "sh", *process.command]
        process.log = tmp_path / "limited.log"
        process.log.write_text("")
        process.start()
        revision = won["revision"]
        code = 200
        while code == 200:
            won["revision"] = revision
            code, answer = call(
                process.url, "PUT", "/v1/jobs/seat", swap_body(revision, by="x" * 400)
            )
            revision = answer.get("revision", 0)
        assert code == 500
        assert process.process is not None
        assert process.process.wait(10) == 5
        process.process = None
        process.command = command
        process.start()
        assert call(process.url, "GET", "/v1/jobs/seat")[1]["revision"] == won["revision"]


# -- what it tells ---------------------------------------------------------------------------------


def test_metrics_and_lines_of_the_log(tmp_path: Path) -> None:
    with WitnessProcess(tmp_path) as process:
        _, won = call(process.url, "PUT", "/v1/jobs/seat", swap_body(by="a: founded"))
        call(process.url, "PUT", "/v1/jobs/seat", swap_body(partner=None))
        call(process.url, "PUT", "/v1/jobs/seat", b"{")
        call(process.url, "PUT", "/v1/jobs/alive/a")
        assert won["revision"] > 0
        with urllib.request.urlopen(process.url + "/metrics") as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }
        assert found["tandemq_witness_swaps_total", "made"] == 1
        assert found["tandemq_witness_swaps_total", "lost"] == 1
        assert found["tandemq_witness_swaps_total", "refused"] == 1
        assert found["tandemq_witness_seat_number", "jobs"] == 1
        assert found["tandemq_witness_seat_alone", "jobs"] == 0
        assert found["tandemq_witness_nodes_alive", "jobs"] == 1
        assert found["tandemq_witness_swap_seconds_count",] == 1
        assert found["tandemq_witness_log_bytes",] > 128
        assert found["tandemq_witness_requests_total", "seat", "409"] == 1
        assert found["process_resident_memory_bytes",] > 0
        assert "jobs: number 1, a leads, b may be promoted (a: founded)" in process.text()


@pytest.mark.asyncio
async def test_what_is_no_witness_is_said() -> None:
    from aiohttp import web

    async def other(request: web.Request) -> web.Response:
        if request.path.endswith("alive"):
            return web.json_response({"alive": "everybody"})
        return web.json_response({"revision": "7", "seat": None})

    app = web.Application()
    app.add_routes([web.get("/v1/jobs/{what}", other)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = Witness(f"http://127.0.0.1:{runner.addresses[0][1]}", "jobs")
    wrong = Witness(f"http://127.0.0.1:{runner.addresses[0][1]}/elsewhere", "jobs")
    try:
        with pytest.raises(ArbiterRefused, match="no revision that fits"):
            await client.read()
        with pytest.raises(ArbiterRefused, match="the answer is not a witness"):
            await client.alive()
        with pytest.raises(ArbiterRefused, match="HTTP 404"):
            await wrong.read()
    finally:
        await client.close()
        await wrong.close()
        await runner.cleanup()


@pytest.mark.asyncio
async def test_a_witness_that_forgot_is_told_by_name(tmp_path: Path) -> None:
    with WitnessProcess(tmp_path) as process:
        client = Witness(process.url, "jobs")
        first = await client.swap(0, a_seat())
        waiting = asyncio.create_task(anext(client.watch(first.revision)))
        await asyncio.sleep(0.2)
        process.end()
        (process.data / "witness").unlink()
        await asyncio.to_thread(process.start)
        with pytest.raises((ArbiterRefused, Unreachable)):
            await asyncio.wait_for(waiting, 8)
        with pytest.raises(ArbiterRefused, match="older copy"):
            await asyncio.wait_for(anext(client.watch(first.revision)), 8)
        with pytest.raises(SwapLost):
            await client.swap(first.revision, a_seat(2))
        await client.close()
