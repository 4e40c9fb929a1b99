"""What `make setup` and `make test` install: one version of each package, by its hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
OURS = {"tandemq", "tandemq-server"}


def locked(name: str) -> dict[str, set[str]]:
    """Versions by package; one for each range of Pythons or systems. Raises if one has no hash."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for entry in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry, entry
        package, version = re.match(r"([\w.-]+)(?:\[[^\]]*\])?==(\S+)", entry).groups()
        found.setdefault(canonicalize_name(package), set()).add(version)
    return found


def wanted(path: str, *extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]
    texts = list(project["dependencies"])
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    return [one for one in map(Requirement, texts) if one.name not in OURS]


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        ("product", wanted("pyproject.toml") + wanted("client/pyproject.toml")),
        (
            "test",
            wanted("pyproject.toml", "test")
            + wanted("client/pyproject.toml", "sync", "spark", "taskiq", "dramatiq", "celery"),
        ),
    ],
)
def test_every_dependency_is_locked(lock: str, requirements: list[Requirement]) -> None:
    """Run `make lock` when this fails."""
    versions = locked(lock)
    for one in requirements:
        found = versions.get(canonicalize_name(one.name), set())
        assert found, f"{one} is not in requirements/{lock}.txt"
        assert all(one.specifier.contains(version) for version in found), f"{one}: {found}"


def test_what_the_product_needs_is_the_same_for_the_tests() -> None:
    product, tests = locked("product"), locked("test")
    assert {name: tests.get(name) for name in product} == product


def test_nothing_is_installed_but_by_its_hash() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = [
        line for line in makefile.splitlines() if "$(PIP)" in line and not line.endswith(" uv")
    ]
    assert len(installs) == 4
    for line in installs:
        assert "--require-hashes -r requirements/" in line or "--no-deps" in line, line
