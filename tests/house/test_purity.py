"""Pure rooms are held so by lint: violations planted in them are seen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVER = sorted(
    path.name for path in (ROOT / "src" / "tandemq_server").iterdir() if path.is_symlink()
)
#: Rooms as dotted names, and where their files are.
PURE = {
    "tandemq.model": "client/tandemq/model",
    "tandemq_server.spaces": "spaces",
    "tandemq_server.drivers": "drivers",
    "tandemq_server.engine": "engine",
    "tandemq_server.statemachine": "statemachine",
    "tandemq_server.wire": "wire",
    "tandemq_server.replication": "replication",
    "tandemq_server.node.core": "node/core",
    "tandemq_server.node.cluster": "node/cluster",
    "tandemq_server.facades": "facades",
}
STORAGE = {"tandemq_server.storage": "storage", "tandemq.log": "client/tandemq/log"}
PLANTED = '''"""Planted."""

import random
import socket
from time import sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
'''


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What lint says of a copy with a violation in each pure room, and one arrow that goes up."""
    home = tmp_path_factory.mktemp("house")
    for name in (*SERVER, "src", "client"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, home / name, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", home)
    for folder in (*PURE.values(), *STORAGE.values()):
        (home / folder / "planted.py").write_text(PLANTED)
    upward = '"""Planted."""\n\nfrom tandemq_server.engine.engine import Engine\n'
    (home / "wire" / "upward.py").write_text(upward)
    (home / "client" / "tandemq" / "client" / "upward.py").write_text(upward)
    roots = os.pathsep.join((str(home / "src"), str(home / "client")))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=home,
        env=os.environ | {"PYTHONPATH": roots, "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0, done.stdout
    return re.sub(r"\s+", " ", done.stdout)


@pytest.mark.parametrize("room", [*PURE, *STORAGE])
@pytest.mark.parametrize("module", ["random", "socket", "time", "asyncio"])
def test_a_planted_import_is_seen(said: str, room: str, module: str) -> None:
    assert f"{room}.planted -> {module} " in said


@pytest.mark.parametrize("module", ["tandemq_server.wire.upward", "tandemq.client.upward"])
def test_an_arrow_that_goes_up_is_seen(said: str, module: str) -> None:
    assert f"{module} -> tandemq_server.engine.engine " in said


def test_the_list_of_pure_rooms_is_the_one_that_lint_reads() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contract = text.split('name = "Pure rooms reach')[1].split("forbidden_modules")[0]
    assert set(re.findall(r'"(tandemq[\w.]+)"', contract)) == set(PURE)


def test_nothing_is_imported_by_the_name_of_its_folder() -> None:
    """With the repository on the path, `import engine` would be a second copy of the room.

    (But the user's own modules in the test of the installation are meant to be called so.)
    """
    names = "|".join((*SERVER, "model", "pipeline"))
    wrong = re.compile(rf"^\s*(?:from|import) (?:{names})\b", re.MULTILINE)
    folders = (*SERVER, "client", "demo", "benchmarks", "tests", "examples")
    for path in (file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        if path.parent.name == "install":
            continue
        found = wrong.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path.relative_to(ROOT)}: {found}"
