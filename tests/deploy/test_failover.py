"""The arbiters of deploy/: units and manifests by their linters, and as real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandemq_server.arbiters.base import Arbiter, Unreachable
from tandemq_server.arbiters.open import open_arbiter
from tandemq_server.config.arbiters import EtcdSettings, WitnessSettings
from tests.arbiters.arbiter_servers import etcd_program
from tests.arbiters.arbiter_worlds import a_seat
from tests.deploy.conftest import DEPLOY, program
from tests.deploy.test_files import EXPOSURE_MAX, SECRETS, TANDEMQ, run
from tests.ports import free_ports

VARIABLE = "TANDEMQ_FAILOVER__"


@pytest.mark.parametrize("name", ["tandemq-witness.service", "tandemq-archive@.service"])
def test_the_units_beside_the_nodes_are_sound_and_hardened(name: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / name).read_text()
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/tandemq/bin/tandemq", TANDEMQ))
    analyze = program("systemd-analyze")
    done = run(analyze, "verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")
    done = run(analyze, "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(unit))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["witness.yaml", "etcd.yaml"])
def test_kubernetes_manifests_fit_their_schema(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kubernetes_validate
    found = [one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()) if one]
    assert found[0]["metadata"]["name"] == "tandemq-failover"
    for one in found:
        kubernetes_validate.validate(one, "1.31", strict=True)


@pytest.mark.parametrize("name", ["compose.witness.yaml", "compose.etcd.yaml"])
def test_the_compose_files_are_understood_together(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "deploy" / "docker"
    (copy / "secrets").mkdir(parents=True)
    (copy / "secrets" / "node.env").write_text("ADMIN_TOKEN=x\n")
    for one in ("compose.yaml", name):
        (copy / one).write_text((DEPLOY / "docker" / one).read_text())
    done = run(program("compose-go"), str(copy / "compose.yaml"), str(copy / name), cwd=copy)
    assert done.returncode == 0, done.stdout + done.stderr
    services = yaml.safe_load((DEPLOY / "docker" / name).read_text())["services"]
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith(".") and "secrets" not in source:
                assert (DEPLOY / "docker" / source).exists(), source


# -- as real processes -----------------------------------------------------------------------------


@contextlib.contextmanager
def started(command: list[str], env: Mapping[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **env})
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(15)


def swaps(arbiter: Arbiter, log: Path) -> None:
    """It answers, and lets itself be written."""

    async def try_it() -> None:
        end = time.monotonic() + 20
        while True:
            try:
                won = await arbiter.swap((await arbiter.read()).revision, a_seat())
                break
            except Unreachable as error:
                assert time.monotonic() < end, f"{error}\n{log.read_text()[-2000:]}"
                await asyncio.sleep(0.1)
        assert await arbiter.read() == won
        await arbiter.keep_alive("a")
        assert await arbiter.alive() == {"a"}
        await arbiter.close()

    asyncio.run(try_it())


def certificate(home: Path) -> Path:
    """The folder with the certificate that the script for compose makes."""
    (home / "secrets.sh").write_text((DEPLOY / "docker" / "secrets.sh").read_text())
    done = run("sh", str(home / "secrets.sh"))
    assert done.returncode == 0, done.stderr
    return home / "secrets" / "tls"


def compose_service(name: str, service: str) -> tuple[list[str], dict[str, Any]]:
    """(its command, the settings its arbiter has at a node)."""
    compose = yaml.safe_load((DEPLOY / "docker" / name).read_text())
    given = compose["services"]["node-a"]["environment"]
    assert given == compose["services"]["node-b"]["environment"]
    return compose["services"][service]["command"], settings_in(given)


def settings_in(variables: Mapping[str, str]) -> dict[str, Any]:
    """{"url": ...} of {"TANDEMQ_FAILOVER__WITNESS__URL": ...}."""
    kind = variables[VARIABLE + "ARBITER"]
    prefix = f"{VARIABLE}{kind.upper()}__"
    return {
        name.removeprefix(prefix).lower(): value
        for name, value in variables.items()
        if name.startswith(prefix)
    }


def test_the_witness_of_compose_serves_a_node_with_its_settings(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    (port,) = free_ports(1)
    command, settings = compose_service("compose.witness.yaml", "witness")
    here = {
        "/etc/tandemq/tls": str(tls),
        "/var/lib/tandemq": str(tmp_path / "data"),
        ":8400": f":{port}",
        "//witness": "//localhost",
    }
    command = [placed(word, here) for word in command]
    settings = {key: placed(value, here) for key, value in settings.items()}
    token = {"WITNESS_TOKEN": (tls.parent / "witness-token").read_text()}
    assert f"WITNESS_TOKEN={token['WITNESS_TOKEN']}" in (tls.parent / "node.env").read_text()
    log = tmp_path / "log"
    with started([TANDEMQ, *command], token, log):
        swaps(open_arbiter(WitnessSettings(**settings), "jobs", 3.0, 1.0, token), log)


def test_the_etcd_of_compose_serves_a_node_with_its_settings(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    port, peer = free_ports(2)
    command, settings = compose_service("compose.etcd.yaml", "etcd")
    here = {
        "/etc/tandemq/tls": str(tls),
        "=/tls/": f"={tls}/",
        "/etcd-data": str(tmp_path / "data"),
        ":2379": f":{port}",
        "//etcd": "//localhost",
    }
    own = f"http://127.0.0.1:{peer}"
    command = [
        *(etcd_program(), *(placed(word, here) for word in command[1:])),
        *("--listen-peer-urls", own, "--initial-advertise-peer-urls", own),
        *("--initial-cluster", f"etcd={own}"),
    ]
    settings = {key: placed(value, here) for key, value in settings.items()}
    log = tmp_path / "log"
    with started(command, {}, log):
        swaps(open_arbiter(EtcdSettings(**settings), "jobs", 3.0, 1.0, {}), log)


def test_the_etcd_of_debian_starts_with_the_example(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "etcd.default.example").read_text()
    given = dict(re.findall(r"^(ETCD_\w+)=(.*)$", text, re.MULTILINE))
    tls = certificate(tmp_path)
    port, peer = free_ports(2)
    here = {
        "/etc/etcd/ca.pem": str(tls / "cert.pem"),
        "/etc/etcd": str(tls),
        "/var/lib/etcd/tandemq": str(tmp_path / "data"),
        "192.0.2.13:2379": f"127.0.0.1:{port}",
        "192.0.2.13:2380": f"127.0.0.1:{peer}",
        # The other two are not here: it is the first of its cluster.
        "a=https://192.0.2.11:2380,b=https://192.0.2.12:2380,": "",
    }
    env = {name: placed(value, here) for name, value in given.items()}
    settings = yaml.safe_load((DEPLOY / "systemd" / "failover-etcd.yaml").read_text())["failover"]
    own = {
        **settings["etcd"],
        "endpoints": [f"https://localhost:{port}"],
        "ca": str(tls / "cert.pem"),
    }
    log = tmp_path / "log"
    with started([etcd_program()], env, log):
        swaps(open_arbiter(EtcdSettings(**own), "jobs", 3.0, 1.0, SECRETS), log)


def placed(text: str, here: Mapping[str, str]) -> str:
    for there, found in here.items():
        text = text.replace(there, found)
    return text


# -- what the nodes are told -----------------------------------------------------------------------


@pytest.mark.parametrize("node", ["a", "b"])
@pytest.mark.parametrize("kind", ["witness", "etcd"])
def test_the_nodes_of_systemd_accept_the_section(kind: str, node: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / f"{node}.yaml").read_text()
    section = (DEPLOY / "systemd" / f"failover-{kind}.yaml").read_text()
    (tmp_path / "node.yaml").write_text(text + section)
    done = run(
        TANDEMQ, "config", "check", str(tmp_path / "node.yaml"), env={**os.environ, **SECRETS}
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["witness", "etcd"])
def test_the_variables_of_containers_are_accepted(kind: str, tmp_path: Path) -> None:
    compose = yaml.safe_load((DEPLOY / "docker" / f"compose.{kind}.yaml").read_text())
    manifests = yaml.safe_load_all((DEPLOY / "kubernetes" / f"{kind}.yaml").read_text())
    for variables in (
        compose["services"]["node-a"]["environment"],
        next(one for one in manifests if one["kind"] == "ConfigMap")["data"],
    ):
        node = yaml.safe_load((DEPLOY / "docker" / "node-b.yaml").read_text())
        del node["tls"]
        node["admin"] = "127.0.0.1:8081"
        (tmp_path / "node.yaml").write_text(yaml.safe_dump(node))
        done = run(
            *(TANDEMQ, "config", "check", str(tmp_path / "node.yaml")),
            env={**os.environ, **SECRETS, **variables},
        )
        assert done.returncode == 0, done.stderr
