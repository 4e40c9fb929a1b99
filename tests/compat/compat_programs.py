"""Programs in other languages that drive the server: how they are built, run and read.

Built things go to `.tools/`, keyed by their sources, so that a second run builds nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.compat.compat_server import ROOT

HERE = Path(__file__).resolve().parent
TOOLS = ROOT / ".tools"
BUILD_SECONDS = 300
RUN_SECONDS = 60
#: What go-tarantool's guide from v2 to v3 renames; nothing else of the program changes.
GO_RENAMED = (
    ("go-tarantool/v2", "go-tarantool/v3"),
    ("refused tarantool.Error", "refused tarantool.ServerError"),
    ("pool.Connect(", "pool.New("),
    ("connections.GetInfo()", "connections.Info()"),
    (".ConnRole", ".Role"),
    ("pool.MasterRole", "pool.RoleMaster"),
    ("pool.RW)", "pool.ModeRW)"),
)


def program(name: str, *elsewhere: str) -> str:
    """Where a tool is. Without it the test fails under CI=true and is skipped by name otherwise."""
    found = shutil.which(name)
    for place in elsewhere:
        found = found or shutil.which(place)
    if found:
        return found
    reason = f"{name} is not installed (tests/tools/ensure_tools.sh installs it)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def digest(directory: Path) -> str:
    """Of all files of a directory: changes when a rebuild is due."""
    total = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:16]


def run(command: list[str], seconds: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run to its end, output captured; a failure shows what it printed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, **options
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done


def build_go(major: int = 2) -> Path:
    """The Go program with that version of the connector; compiled once per state of its sources."""
    go = program("go", "/usr/local/go/bin/go")
    written, module = HERE / "go", HERE / ("go" if major == 2 else "go3")
    target = TOOLS / "go" / f"{digest(written)}{digest(module)}" / "compat"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as place:
            shutil.copytree(module, place, dirs_exist_ok=True)
            text = (written / "main.go").read_text()
            for old, new in GO_RENAMED if major == 3 else ():
                assert old in text, old
                text = text.replace(old, new)
            Path(place, "main.go").write_text(text)
            command = [go, "build", "-mod=readonly", "-buildvcs=false", "-o", "compat", "."]
            run(command, BUILD_SECONDS, cwd=place)
            Path(place, "compat").rename(target)
    return target


def install_node() -> list[str]:
    """The command that runs the Node.js program, its packages installed from the lock file."""
    node, npm = program("node"), program("npm")
    source = HERE / "node"
    target = TOOLS / "node" / digest(source)
    if not (target / "installed").exists():
        shutil.copytree(source, target, dirs_exist_ok=True)
        options = ["--no-audit", "--no-fund", "--ignore-scripts"]
        run([npm, "ci", *options], BUILD_SECONDS, cwd=target)
        (target / "installed").touch()
    return [node, str(target / "drive.js")]


def build_java() -> list[str]:
    """The command that runs the Java program; compiled, and its packages fetched, once."""
    java, javac, maven = program("java"), program("javac"), program("mvn")
    source = HERE / "java"
    target = TOOLS / "java" / digest(source)
    if not (target / "compiled").exists():
        copying = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        words = ["-q", "-B", "-ntp", "-f", str(source / "pom.xml"), copying]
        run([maven, *words, f"-DoutputDirectory={target}"], BUILD_SECONDS)
        words = ["-cp", f"{target}/*", "-d", str(target)]
        run([javac, *words, str(source / "Drive.java")], BUILD_SECONDS)
        (target / "compiled").touch()
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java, *options, "-cp", f"{target}:{target}/*", "Drive"]


def steps(command: list[str]) -> dict[str, dict[str, Any]]:
    """Run a program; what it printed, by step: {"value": ...} or {"error": ..., "code": ...}."""
    found: dict[str, dict[str, Any]] = {}
    for line in run(command, RUN_SECONDS).stdout.splitlines():
        one = json.loads(line)
        name = one.pop("step")
        assert name not in found, f"{name} was reported twice"
        found[name] = one
    return found
