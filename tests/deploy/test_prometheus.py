"""A real Prometheus scrapes two real nodes; promtool checks metrics, rules and their tests."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.cluster_nodes import Pair, free_ports, until
from tests.deploy.conftest import DEPLOY, program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
RULES = DEPLOY / "prometheus"
#: What others export, the rule about disks needs the node exporter; and nodes with TLS only.
FOREIGN = {"node_filesystem_avail_bytes", "tandemq_certificate_end_timestamp_seconds"}
WORDS = re.compile(r"\b(tandemq_[a-z_]+|process_[a-z_]+|node_[a-z_]+)\b")


def promtool(*words: str, stdin: bytes | None = None) -> str:
    done = subprocess.run(
        [program("promtool"), *words], input=stdin, capture_output=True, timeout=60, cwd=RULES
    )
    text = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, text
    return text


def metrics(nodes: Pair) -> bytes:
    url = f"http://127.0.0.1:{nodes.a.admin_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: bytes = answer.read()
    return found


def test_rules_and_configuration_are_valid_and_fire_when_they_should() -> None:
    assert "21 rules found" in promtool("check", "rules", "alerts.yml")
    promtool("check", "config", "prometheus.yml")
    promtool("test", "rules", "alerts_test.yml")


def test_names_units_and_help_are_as_promtool_wants_them(nodes: Pair) -> None:
    fill(nodes)
    said = promtool("check", "metrics", stdin=metrics(nodes))
    assert not [line for line in said.splitlines() if "tandemq_" in line], said


def fill(nodes: Pair) -> None:
    client = nodes.a.connect()
    client.call("queue.create_tube", "dead", "fifo", {"if_not_exists": True})
    policy = {"max_attempts": 3, "dead_letter": "dead", "age_max": 300}
    client.call("queue.create_tube", "jobs", "fifottl", {"if_not_exists": True, **policy})
    # Enough calls for measured ones among them.
    for number in range(60):
        client.call("queue.tube.jobs:put", number)
    task = client.call("queue.tube.jobs:take", 0).data[0]
    client.call("queue.tube.jobs:ack", task[0])
    nodes.in_step()


def test_rules_and_dashboard_ask_for_what_is_exported(nodes: Pair) -> None:
    fill(nodes)
    exported = {line.split("{")[0].split(" ")[0] for line in metrics(nodes).decode().splitlines()}
    rules = yaml.safe_load((RULES / "alerts.yml").read_text())
    texts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    board = json.loads((DEPLOY / "grafana" / "tandemq.json").read_text())
    texts += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = {word for text in texts for word in WORDS.findall(text)} - FOREIGN
    assert len(asked) > 12
    assert not asked - exported


def test_a_real_prometheus_scrapes_both_nodes(nodes: Pair, tmp_path: Path) -> None:
    fill(nodes)
    config = yaml.safe_load((RULES / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES / "alerts.yml")]
    targets = [f"127.0.0.1:{member.admin_port}" for member in (nodes.a, nodes.b)]
    config["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_ports(1)[0]
    log = (tmp_path / "prometheus.log").open("wb")
    running = subprocess.Popen(
        [
            program("prometheus"),
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=log,
        stderr=log,
    )

    def query(text: str) -> list[Any]:
        url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': text})}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                found: list[Any] = json.loads(answer.read())["data"]["result"]
        except OSError:
            return []
        return found

    try:
        until(lambda: len(query("up == 1")) == 2, 40, every=0.3)
        until(lambda: [one["value"][1] for one in query("sum(tandemq_writable)")] == ["1"], 20)
        ready = query('tandemq_tube_tasks{tube="jobs",state="ready"}')
        assert {one["metric"]["instance"] for one in ready} == set(targets)
        assert query('tandemq_replication_lag_records{role="downstream"}')
        for name in ("request_turn", "call", "wal_append"):
            count = query(f"sum(tandemq_{name}_seconds_count)")
            assert float(count[0]["value"][1]) > 0, name
        assert not query('ALERTS{alertname="TandemTwoMasters"}')
    finally:
        running.terminate()
        running.wait(15)
        log.close()
