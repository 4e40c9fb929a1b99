"""The Helm chart makes what stands in deploy/kubernetes/, and nothing in its values is idle.

Its templates are rendered by Go's text/template (chart/render.go), which is what Helm renders with.
By hand, where there is Helm: `helm lint --strict deploy/helm/tandemq`, `helm template tandemq ...`.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.conftest import DEPLOY, program

pytestmark = [pytest.mark.slow, pytest.mark.integration]
CHART = DEPLOY / "helm" / "tandemq"
PLAIN = DEPLOY / "kubernetes"
Render = Callable[..., list[dict[str, Any]]]


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Render:
    built = tmp_path_factory.mktemp("chart") / "render"
    go = shutil.which("go") or program("/usr/local/go/bin/go")
    source = Path(__file__).with_name("chart") / "render.go"
    made = subprocess.run(
        [go, "build", "-o", str(built), str(source)], capture_output=True, text=True, timeout=240
    )
    assert made.returncode == 0, made.stderr

    def rendered(given: dict[str, Any] | None = None, release: str = "tandemq") -> list[Any]:
        told = {"Values": given or values(), "Release": {"Name": release, "Namespace": "default"}}
        words = [str(built), *map(str, sorted((CHART / "templates").glob("*.yaml")))]
        done = subprocess.run(words, input=json.dumps(told), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return read(done.stdout)

    return rendered


def read(text: str) -> list[Any]:
    """Objects, sorted; the node's configuration as what it means."""
    found = [one for one in yaml.safe_load_all(text) if one]
    for one in found:
        if "node.yaml" in one.get("data", {}):
            one["data"]["node.yaml"] = yaml.safe_load(one["data"]["node.yaml"])
    return sorted(found, key=lambda one: (one["kind"], one["metadata"]["name"]))


def plain(*names: str) -> list[Any]:
    return read("\n---\n".join((PLAIN / name).read_text() for name in names))


def test_it_makes_the_objects_of_the_plain_manifests(render: Render) -> None:
    assert render() == plain("tandemq.yaml")
    given = values()
    given["failover"]["arbiter"] = "witness"
    assert render(given) == plain("tandemq.yaml", "witness.yaml")
    given["failover"]["arbiter"] = "etcd"
    (settings,) = [one for one in plain("etcd.yaml") if one["kind"] == "ConfigMap"]
    assert settings in render(given)
    assert len(render(given)) == len(plain("tandemq.yaml")) + 1


def test_another_release_stands_beside_it(render: Render) -> None:
    given = values()
    given["failover"]["arbiter"] = "witness"
    names = {(one["kind"], one["metadata"]["name"]) for one in render(given, "other")}
    assert not names & {(one["kind"], one["metadata"]["name"]) for one in render(given)}
    # Only what the values name is still called so: the image, and the secrets.
    left = json.dumps(render(given, "other")).replace("/var/lib/tandemq", "")
    left = re.sub(r"/etc/tandemq|exec tandemq serve|TANDEMQ|tandemq:0[.\d]+", "", left)
    assert set(re.findall(r"[\w-]*tandemq[\w-]*", left)) == {"tandemq", "tandemq-tls"}


def test_each_value_changes_something(render: Render) -> None:
    for arbiter, section in (("none", "etcd|witness"), ("witness", "etcd"), ("etcd", "witness")):
        given = values()
        given["failover"]["arbiter"] = arbiter
        before = render(given)
        for path in leaves(given):
            if path[0] == "failover" and (arbiter == "none" or path[1] in section.split("|")):
                continue
            if path[-1] == "arbiter":
                continue
            changed = copy.deepcopy(given)
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = "17" if isinstance(place[path[-1]], str) else []
            assert render(changed) != before, f"{path} is used nowhere"


def leaves(found: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(found, dict):
        return [path]
    return [leaf for key, value in found.items() for leaf in leaves(value, (*path, key))]


def test_it_fits_the_schema_and_has_the_version_of_the_product(render: Render) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kubernetes_validate
    given = values()
    given["failover"]["arbiter"] = "witness"
    for one in render(given):
        if one["kind"] == "ConfigMap":
            one["data"] = {key: str(value) for key, value in one["data"].items()}
        kubernetes_validate.validate(one, "1.31", strict=True)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
    assert given["image"] == f"tandemq:{project['version']}"
