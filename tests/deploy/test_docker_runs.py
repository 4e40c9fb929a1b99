"""The configurations of deploy/docker at work: two nodes with TLS, toxiproxy, haproxy as processes.

Only names of containers and ports are others here; certificate and secrets are those of secrets.sh.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import tarantool
import yaml

from tests.cluster.cluster_nodes import TANDEMQ, free_ports, until
from tests.deploy.conftest import DEPLOY, program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
DOCKER = DEPLOY / "docker"
TOXIPROXY = DEPLOY.parent / ".tools" / "toxiproxy"


class Deployment:
    """What compose.yaml would start, without Prometheus and Grafana."""

    def __init__(self, home: Path, running: ExitStack) -> None:
        self.home = home
        self.running = running
        ports = free_ports(9)
        self.queue = dict(zip("ab", ports[:2], strict=True))
        self.admin = dict(zip("ab", ports[2:4], strict=True))
        self.link = dict(zip("ab", ports[4:6], strict=True))
        self.writers, self.readers, self.toxi = ports[6:]
        script = home / "secrets.sh"
        script.write_text((DOCKER / "secrets.sh").read_text())
        subprocess.run(["sh", str(script)], check=True, capture_output=True, timeout=30)
        lines = (home / "secrets" / "node.env").read_text().splitlines()
        self.secrets = dict(line.split("=", 1) for line in lines)
        self.tls = ssl.create_default_context(cafile=str(home / "secrets" / "tls" / "cert.pem"))

    def begin(self, name: str, *command: str, **env: str) -> None:
        log = self.running.enter_context((self.home / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **env})
        self.running.callback(process.wait, 20)
        self.running.callback(process.terminate)

    def start(self) -> None:
        listed = json.loads((DOCKER / "toxiproxy.json").read_text())
        assert [one["upstream"] for one in listed] == ["node-a:3301", "node-b:3301"]
        for one, name in zip(listed, "ab", strict=True):
            one["listen"] = f"127.0.0.1:{self.link[name]}"
            one["upstream"] = f"127.0.0.1:{self.queue[name]}"
        (self.home / "toxiproxy.json").write_text(json.dumps(listed))
        (server,) = TOXIPROXY.glob("v*/server")
        config = f"-config={self.home / 'toxiproxy.json'}"
        self.begin("toxiproxy", str(server), "-host=127.0.0.1", f"-port={self.toxi}", config)
        for name in "ab":
            path = self.node_file(name)
            self.begin(name, TANDEMQ, "serve", "--config", str(path), **self.secrets)
        text = (DOCKER / "haproxy.cfg").read_text()
        for name in "ab":
            text = re.sub(
                rf"node-{name}:3301 (.*) port 8081",
                rf"127.0.0.1:{self.queue[name]} \1 port {self.admin[name]}",
                text,
            )
        text = text.replace(":3300\n", f"127.0.0.1:{self.writers}\n")
        text = text.replace(":3310\n", f"127.0.0.1:{self.readers}\n")
        assert "node-" not in text
        (self.home / "haproxy.cfg").write_text(text)
        self.begin("haproxy", program("haproxy"), "-db", "-f", str(self.home / "haproxy.cfg"))

    def node_file(self, name: str) -> Path:
        text = (DOCKER / f"node-{name}.yaml").read_text()
        found = yaml.safe_load(text)
        assert (found["listen"], found["admin"]) == ("0.0.0.0:3301", "0.0.0.0:8081")
        other = "b" if name == "a" else "a"
        assert found["peers"] == [f"toxiproxy:{3301 if other == 'a' else 3302}"]
        found["listen"] = f"0.0.0.0:{self.queue[name]}"
        found["admin"] = f"0.0.0.0:{self.admin[name]}"
        found["peers"] = [f"localhost:{self.link[other]}"]
        found["data_dir"] = str(self.home / name)
        folder = self.home / "secrets" / "tls"
        found["tls"] = {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
        path = self.home / f"{name}.yaml"
        path.write_text(yaml.safe_dump(found))
        return path

    def ask(self, name: str, path: str, host: str, body: Any = None) -> tuple[int, Any]:
        """(HTTP status, JSON) of a node's admin API, asked by a host name."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.admin[name]}{path}",
            None if body is None else json.dumps(body).encode(),
            {
                "Host": host,
                "Authorization": f"Bearer {self.secrets['ADMIN_TOKEN']}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.tls) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError:
            return 0, None

    def text(self) -> str:
        return "".join(path.read_text()[-3000:] for path in self.home.glob("*.log"))


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with ExitStack() as running:
        found = Deployment(tmp_path_factory.mktemp("docker"), running)
        found.start()
        yield found


def ready(deployed: Deployment, name: str) -> bool:
    return deployed.ask(name, "/readiness", f"node-{name}:8081")[0] == 200


def call(deployed: Deployment, name: str, *args: Any) -> Any:
    """What a worker gets through haproxy, with TLS and its password."""
    client = tarantool.Connection(
        "127.0.0.1",
        deployed.writers,
        user="worker",
        password=deployed.secrets["WORKER_PASSWORD"],
        transport="ssl",
        ssl_ca_file=str(deployed.home / "secrets" / "tls" / "cert.pem"),
        fetch_schema=False,
        connection_timeout=10,
        socket_timeout=20,
    )
    with contextlib.closing(client):
        return client.call(name, list(args)).data


def served(deployed: Deployment, name: str, *args: Any) -> Any:
    """`call`, as soon as haproxy, which looks twice a second, has found the node that serves."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return call(deployed, name, *args)
        except (tarantool.Error, OSError):
            assert time.monotonic() < deadline, deployed.text()


def test_the_pair_works_and_is_switched_over(deployed: Deployment) -> None:
    until(lambda: ready(deployed, "a") and ready(deployed, "b"), 60, every=0.2)

    def paired() -> bool:
        state = deployed.ask("a", "/v1/status", "node-a:8081")[1]
        return (state["writable"], state["ack"], state["solo"]) == (True, "pair", False)

    # Pair mode, over TLS, through toxiproxy: what is acknowledged is on both disks.
    until(paired, 30, every=0.2)
    served(deployed, "queue.create_tube", "jobs", "fifo", {"if_not_exists": True})
    assert call(deployed, "queue.tube.jobs:put", "before") == [[0, "r", "before"]]
    code, report = deployed.ask("a", "/v1/switchover", "node-a:8081", {"to": "b"})
    assert (code, report["done"]) == (200, True), report
    until(lambda: deployed.ask("b", "/primary", "localhost")[0] == 200, 20)
    assert served(deployed, "queue.tube.jobs:take", 0) == [[0, "t", "before"]]


def test_commands_and_clients_speak_tls_as_the_compose_file_says(deployed: Deployment) -> None:
    until(lambda: ready(deployed, "a") or ready(deployed, "b"), 60, every=0.2)
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    folder = str(deployed.home / "secrets" / "tls")
    env = {
        name: value.replace("/etc/tandemq/tls", folder)
        for name, value in compose["services"]["node-a"]["environment"].items()
    }
    env |= {"TANDEMQ_USER": "worker", "TANDEMQ_PASSWORD": deployed.secrets["WORKER_PASSWORD"]}
    env["TANDEMQ_SERVER"] = ",".join(f"127.0.0.1:{port}" for port in deployed.queue.values())
    env["TANDEMQ_ADMIN_SERVER"] = f"127.0.0.1:{deployed.admin['a']}"

    def run(*words: str) -> str:
        done = subprocess.run(
            [TANDEMQ, *words],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **deployed.secrets, **env},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "term" in run("status", "--token-env", "ADMIN_TOKEN")
    run("create", "by_tls", "fifo", "--if-not-exists")
    run("put", "by_tls", "one")
    assert json.loads(run("take", "by_tls", "--json"))["payload"] == "one"


def test_only_names_it_is_configured_with_are_answered(deployed: Deployment) -> None:
    until(lambda: ready(deployed, "a"), 60, every=0.2)
    # As Prometheus asks, and as a page of another site would.
    assert deployed.ask("a", "/v1/status", "node-a:8081")[0] == 200
    code, problem = deployed.ask("a", "/v1/status", "evil.example")
    assert (code, problem["type"]) == (403, "urn:tandemq:problem:foreign-host")


def test_the_certificate_and_the_api_know_every_name_that_is_asked(deployed: Deployment) -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    scraped = yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"][0]
    targets = {target.split(":")[0] for target in scraped["static_configs"][0]["targets"]}
    nodes = {name: yaml.safe_load((DOCKER / f"{name}.yaml").read_text()) for name in targets}
    assert len(nodes) == 2
    assert all(nodes[name]["admin_hosts"] == [name] for name in targets)
    peers = {peer.split(":")[0] for node in nodes.values() for peer in node["peers"]}
    assert targets | peers <= compose["services"].keys()
    shown = subprocess.run(
        ["openssl", "x509", "-in", str(deployed.home / "secrets/tls/cert.pem"), "-noout", "-text"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = set(re.findall(r"DNS:([\w.-]+)", shown.stdout))
    assert targets | peers <= names
