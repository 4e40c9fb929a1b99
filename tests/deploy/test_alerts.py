"""Alerts reach a person: real nodes, a real Prometheus with our rules, a real Alertmanager.

Rules wait for 3 seconds instead of minutes; their own waits are held by alerts_test.yml.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from tests.cluster.cluster_nodes import Member, Pair, free_ports, pair, until
from tests.deploy.conftest import DEPLOY, program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SECONDS = 60.0
RESCUED = Path(__file__).parents[1] / "node" / "golden" / "full_rescue_done"
#: What the story below must fire.
TUBES = {"TandemBuriedTasks", "TandemDeadLetters", "TandemOlderThanBound", "TandemPausedLong"}
THIRD = {"TandemCertificateEnds", "TandemRescueFiles"}
REPLICA_GONE = {"TandemNodeDown", "TandemPeerDisconnected", "TandemNobodyPromotable"}


class Inbox(http.server.ThreadingHTTPServer):
    """Who is on call: what Alertmanager sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.firing: dict[str, dict[str, str]] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Receiver(http.server.BaseHTTPRequestHandler):
    """Alertmanager's webhook."""

    server: Inbox

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for alert in body["alerts"]:
            name = alert["labels"]["alertname"]
            self.server.firing[name] = {**alert["annotations"], **alert["labels"]}
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing on standard error."""


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    server = Inbox()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def watched(tmp_path: Path, inbox: Inbox) -> Iterator[Pair]:
    """Two nodes, scraped each second, their alerts sent to the inbox."""
    with pair(tmp_path / "nodes", "--in-replicaset", "--ttr", "30") as nodes, third(tmp_path) as c:
        prometheus, manager = free_ports(2)
        route = {"receiver": "us", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
        hook = {"url": f"http://127.0.0.1:{inbox.server_port}/"}
        write(tmp_path / "manager.yml", route=route, receivers=[receiver("us", hook)])
        rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
        for rule in rules["groups"][0]["rules"]:
            if "for" in rule:
                rule["for"] = "3s"
        write(tmp_path / "alerts.yml", **rules)
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        targets = [f"127.0.0.1:{member.admin_port}" for member in (nodes.a, nodes.b)]
        config["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
        with_tls = {"job_name": "third", "scheme": "https"}
        with_tls |= {"tls_config": {"insecure_skip_verify": True}}
        with_tls["static_configs"] = [{"targets": [f"127.0.0.1:{c.admin_port}"]}]
        config["scrape_configs"].append(with_tls)
        managers = [{"static_configs": [{"targets": [f"127.0.0.1:{manager}"]}]}]
        write(tmp_path / "prometheus.yml", **config, alerting={"alertmanagers": managers})
        commands = [
            [
                program("prometheus-alertmanager"),
                f"--config.file={tmp_path / 'manager.yml'}",
                f"--storage.path={tmp_path / 'manager'}",
                f"--web.listen-address=127.0.0.1:{manager}",
                "--cluster.listen-address=",
            ],
            [
                program("prometheus"),
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{prometheus}",
            ],
        ]
        log = (tmp_path / "programs.log").open("wb")
        running = [subprocess.Popen(each, stdout=log, stderr=log) for each in commands]
        try:
            yield nodes
        finally:
            for process in running:
                process.terminate()
                process.wait(15)
            log.close()


@contextlib.contextmanager
def third(home: Path) -> Iterator[Member]:
    """A node alone that nobody writes to: tasks in rescue files, a certificate of ten days."""
    ends = datetime.now(UTC) + timedelta(days=10)
    issued = trustme.CA().issue_cert("127.0.0.1", not_after=ends)
    issued.private_key_pem.write_to_path(str(home / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(home / "cert.pem"))
    shutil.copytree(RESCUED, home / "c")
    node = Member(home, "c", *free_ports(2), [])
    tls = ("--tls-cert", str(home / "cert.pem"), "--tls-key", str(home / "key.pem"))
    node.start("--read-only", *tls)
    try:
        yield node
    finally:
        node.end()


def receiver(name: str, hook: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "webhook_configs": [hook]}


def write(path: Path, **content: Any) -> None:
    path.write_text(yaml.safe_dump(content))


def test_who_is_on_call_is_told_what_is_wrong(watched: Pair, inbox: Inbox) -> None:
    client = watched.a.connect()
    client.call("queue.create_tube", "dead", "fifo")
    client.call("queue.create_tube", "jobs", "fifo", {"max_attempts": 1, "dead_letter": "dead"})
    client.call("queue.create_tube", "late", "fifottl", {"age_max": 0.5})
    client.call("queue.tube.late:put", "a")
    client.call("queue.create_tube", "stuck", "fifo")
    client.call("queue.tube.stuck:put_many", [[["x"] for _ in range(101)]])
    for number in range(101):
        client.call("queue.tube.stuck:take", 0)
        client.call("queue.tube.stuck:bury", number)
    client.call("queue.tube.stuck:pause", "puts")

    def a_letter() -> bool:
        client.call("queue.tube.jobs:put", "b")
        task = client.call("queue.tube.jobs:take", 0).data[0]
        client.call("queue.tube.jobs:release", task[0])
        return inbox.firing.keys() >= TUBES

    until(a_letter, SECONDS, every=1.0)
    until(lambda: inbox.firing.keys() >= THIRD, SECONDS, every=0.2)
    assert inbox.firing["TandemCertificateEnds"]["setting"] == "tls.cert"
    assert re.search(r"ends in (10|9\.\d+) days", inbox.firing["TandemCertificateEnds"]["summary"])
    assert inbox.firing["TandemBuriedTasks"]["summary"] == "101 buried tasks in stuck"
    assert not inbox.firing.keys() & (REPLICA_GONE | {"TandemNoMaster", "TandemTwoMasters"})
    watched.b.end(signal.SIGKILL)
    until(lambda: inbox.firing.keys() >= REPLICA_GONE, SECONDS, every=0.2)
    watched.a.role(read_only=True)
    until(lambda: "TandemNoMaster" in inbox.firing, SECONDS, every=0.2)
    assert inbox.firing["TandemNoMaster"]["severity"] == "critical"
