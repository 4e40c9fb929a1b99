"""What cannot be run here is checked by its own linter or schema: systemd, compose, Kubernetes."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.conftest import DEPLOY, program

TANDEMQ = str(Path(sys.executable).with_name("tandemq"))
SECRETS = {
    "REPLICATOR_PASSWORD": "a-password",
    "WORKER_PASSWORD": "a-password",
    "ADMIN_TOKEN": "a-token-of-some-length",
    "WITNESS_TOKEN": "a-token-of-some-length",
    "ETCD_PASSWORD": "a-password",
}
#: systemd's own measure of what a service could still do; 10 is everything.
EXPOSURE_MAX = 20


def run(*command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)


def test_the_systemd_unit_is_sound_and_hardened(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "tandemq@.service").read_text()
    unit = tmp_path / "tandemq@a.service"
    # The program is where it is installed on a server; here it is somewhere else.
    unit.write_text(text.replace("/opt/tandemq/bin/tandemq", TANDEMQ))
    analyze = program("systemd-analyze")
    done = run(analyze, "verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")
    done = run(analyze, "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(unit))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("node", ["a", "b"])
def test_the_unit_makes_the_folder_that_the_configuration_names(node: str) -> None:
    """All else is read-only for it: a node that keeps its log elsewhere cannot start."""
    text = (DEPLOY / "systemd" / "tandemq@.service").read_text().replace("%i", node)
    unit = dict(line.split("=", 1) for line in text.splitlines() if line[:1].isupper())
    settings = yaml.safe_load((DEPLOY / "systemd" / f"{node}.yaml").read_text())
    assert f"/var/lib/{unit['StateDirectory']}" == settings["data_dir"] == unit["WorkingDirectory"]


@pytest.mark.parametrize("name", ["systemd/a.yaml", "systemd/b.yaml"])
def test_example_configurations_are_accepted(name: str, tmp_path: Path) -> None:
    done = run(TANDEMQ, "config", "check", str(DEPLOY / name), env={**os.environ, **SECRETS})
    assert done.returncode == 0, done.stderr


def test_configurations_in_containers_are_accepted(tmp_path: Path) -> None:
    import trustme

    issued = trustme.CA().issue_cert("localhost")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    text = (DEPLOY / "kubernetes" / "tandemq.yaml").read_text()
    manifests = {one["kind"]: one for one in yaml.safe_load_all(text) if one}
    config_map = manifests["ConfigMap"]
    # What commands in the pod and the node in it are told goes together.
    (container,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    told = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    own = yaml.safe_load(config_map["data"]["node.yaml"])
    assert told["TANDEMQ_TLS_CA"] == told["TANDEMQ_ADMIN_TLS_CA"] == own["tls"]["cert"]
    hosts = {one.rpartition(":")[0] for one in told["TANDEMQ_SERVER"].split(",")}
    assert hosts <= set(own["admin_hosts"])
    assert told["TANDEMQ_ADMIN_SERVER"] == "localhost:8081"
    texts = [
        (DEPLOY / "docker" / "node-a.yaml").read_text(),
        (DEPLOY / "docker" / "node-b.yaml").read_text(),
        config_map["data"]["node.yaml"],
    ]
    for text in texts:
        # Where the peer is, a command line says in Kubernetes.
        found = {"peers": ["other:3301"], **yaml.safe_load(text)}
        found["tls"] = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
        (tmp_path / "node.yaml").write_text(yaml.safe_dump(found))
        done = run(
            TANDEMQ,
            "config",
            "check",
            str(tmp_path / "node.yaml"),
            env={**os.environ, **SECRETS, **told},
        )
        assert done.returncode == 0, done.stderr


def test_kubernetes_manifests_fit_their_schema() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kubernetes_validate
    text = (DEPLOY / "kubernetes" / "tandemq.yaml").read_text()
    found = [one for one in yaml.safe_load_all(text) if one]
    assert {one["kind"] for one in found} == {
        *("ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet")
    }
    for one in found:
        kubernetes_validate.validate(one, "1.31", strict=True)
    broken = {**found[-1], "spec": {**found[-1]["spec"], "replicas": "two"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.31", strict=True)


def test_the_compose_file_is_understood_and_names_files_that_are_there(tmp_path: Path) -> None:
    path = DEPLOY / "docker" / "compose.yaml"
    compose = yaml.safe_load(path.read_text())
    assert len(compose["services"]) == 6
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith(".") and "secrets" not in source:
                assert (path.parent / source).exists(), source
    copy = tmp_path / "deploy" / "docker"
    (copy / "secrets").mkdir(parents=True)
    (copy / "secrets" / "node.env").write_text("ADMIN_TOKEN=x\n")
    (copy / "compose.yaml").write_text(path.read_text())
    done = run(program("compose-go"), str(copy / "compose.yaml"), cwd=copy)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_script_makes_the_secrets_compose_wants(tmp_path: Path) -> None:
    script = tmp_path / "secrets.sh"
    script.write_text((DEPLOY / "docker" / "secrets.sh").read_text())
    for _ in range(2):
        done = run("sh", str(script))
        assert done.returncode == 0, done.stderr
    variables = (tmp_path / "secrets" / "node.env").read_text().splitlines()
    assert [line.split("=")[0] for line in variables] == [
        *("ADMIN_TOKEN", "REPLICATOR_PASSWORD", "WORKER_PASSWORD", "WITNESS_TOKEN")
    ]
    assert (tmp_path / "secrets" / "tls" / "cert.pem").read_text().startswith("-----BEGIN")
