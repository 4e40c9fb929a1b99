"""toxiproxy: one server process, its proxies, and a client that believes nothing it did not read.

The client library has traps: no time-outs, most errors unmapped, `enable` that reports success on
a taken port. So its calls go through `_ask`, and every change is read back from the server.
What is random stays in the caller: the server's own seed has no effect.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from toxiproxy import Toxiproxy
    from toxiproxy.api import APIConsumer

from tests.cluster.cluster_nodes import free_ports, until

ROOT = Path(__file__).resolve().parents[2]
#: Longer than a healthy call by far, shorter than the server's own 25 s behind a stalled reader.
CALL_SECONDS = 15.0


class ToxiproxyError(AssertionError):
    """The server refused, did not answer in time, or is not as it was told to be."""


def _ask(method: str, url: str, **options: Any) -> requests.Response:
    base = f"http://{APIConsumer.host}:{APIConsumer.port}"
    try:
        with requests.Session() as session:
            session.trust_env = False
            answer = session.request(method, base + url, timeout=CALL_SECONDS, **options)
    except requests.RequestException as error:
        raise ToxiproxyError(f"{method} {url}: {error}") from error
    if answer.status_code >= 300:
        raise ToxiproxyError(f"{method} {url}: {answer.status_code} {answer.text.strip()}")
    return answer


def _replace_calls() -> None:
    """The library's three calls, with time-outs and every status checked."""
    for method in ("get", "post", "delete"):

        def call(url: str, *_: Any, method: str = method, **options: Any) -> requests.Response:
            return _ask(method.upper(), url, **options)

        setattr(APIConsumer, method, staticmethod(call))


def server_program() -> Path:
    """The server `make tools` built. Without it: skipped by name, or failed under CI=true."""
    found = sorted(ROOT.glob(".tools/toxiproxy/v*/server"))
    if found:
        return found[-1]
    reason = "toxiproxy-server is not there (tests/tools/ensure_tools.sh builds it)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class Link:
    """One proxy. Streams: upstream is what the one who dials sends, downstream what it gets."""

    def __init__(self, server: Server, name: str, upstream: int) -> None:
        self.server = server
        self.name = name
        self.proxy = server.client.create(f"127.0.0.1:{upstream}", name, "127.0.0.1:0")
        self.port = int(self.read()["listen"].rpartition(":")[2])

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = _ask("GET", f"/proxies/{self.name}").json()
        return found

    def _set_enabled(self, enabled: bool) -> None:
        (self.proxy.enable if enabled else self.proxy.disable)()
        if self.read()["enabled"] is not enabled:
            raise ToxiproxyError(f"{self.name}: not {'enabled' if enabled else 'disabled'}")

    def cut(self) -> None:
        """Both ends see FIN, new connections are refused."""
        self._set_enabled(False)

    def add(self, kind: str, stream: str = "downstream", **attributes: Any) -> str:
        """Attach a toxic; always to every connection. Returns its name."""
        name = f"{kind}_{stream}"
        self.proxy.add_toxic(
            name=name, type=kind, stream=stream, toxicity=1.0, attributes=attributes
        )
        self._expect(name, kind, stream, attributes)
        return name

    def update(self, name: str, **attributes: Any) -> None:
        answer = _ask(
            "PATCH", f"/proxies/{self.name}/toxics/{name}", json={"attributes": attributes}
        ).json()
        self._expect(name, answer["type"], answer["stream"], attributes)

    def _expect(self, name: str, kind: str, stream: str, attributes: dict[str, Any]) -> None:
        for toxic in self.read()["toxics"]:
            if toxic["name"] == name:
                there = {key: toxic["attributes"].get(key) for key in attributes}
                said = (toxic["type"], toxic["stream"], toxic["toxicity"], there)
                if said == (kind, stream, 1, attributes):
                    return
                raise ToxiproxyError(f"{self.name}: {name} is {said}")
        raise ToxiproxyError(f"{self.name}: no toxic {name}")

    def release(self, name: str) -> None:
        """Take a toxic away from live connections: what it held back arrives. Both ends must
        still want it; see `heal` for connections they may have given up.
        """
        _ask("DELETE", f"/proxies/{self.name}/toxics/{name}")
        if any(toxic["name"] == name for toxic in self.read()["toxics"]):
            raise ToxiproxyError(f"{self.name}: {name} is still there")

    def heal(self) -> None:
        """No toxics, enabled. A proxy that had any is made anew on its port: to take them away from
        connections that are half dead hangs the server for good, even while the proxy is down.
        """
        before = self.read()
        if before["toxics"]:
            self.proxy.destroy()
            self.proxy = self.server.client.create(before["upstream"], self.name, before["listen"])
            after = self.read()
            if after["toxics"] or after["listen"] != before["listen"] or not after["enabled"]:
                raise ToxiproxyError(f"{self.name}: made anew, it is {after}")
        elif not before["enabled"]:
            self._set_enabled(True)


class Server:
    """One toxiproxy-server; the library's address is a class attribute, so one per process."""

    def __init__(self, home: Path) -> None:
        _replace_calls()
        (port,) = free_ports(1)
        self.log = home / "toxiproxy.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [server_program(), "-host", "127.0.0.1", "-port", str(port)],
                stdout=log,
                stderr=log,
            )
        self.client = Toxiproxy()
        self.client.update_api_consumer("127.0.0.1", port)
        until(self._answers)
        self.links: dict[str, Link] = {}

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise ToxiproxyError(f"toxiproxy ended: {self.log.read_text()}")
        with contextlib.suppress(ToxiproxyError):
            return "version" in _ask("GET", "/version").json()
        return False

    def link(self, name: str, upstream: int) -> Link:
        self.links[name] = Link(self, name, upstream)
        return self.links[name]

    def heal(self) -> None:
        for link in self.links.values():
            link.heal()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


@contextlib.contextmanager
def serving(home: Path) -> Iterator[Server]:
    server = Server(home)
    try:
        yield server
    finally:
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 30
