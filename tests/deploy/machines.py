"""Servers as docs/operations.md has them, below one folder each: commands of that page run on them.

What needs root is stood in for: systemctl starts what the unit file says as a process, pip changes
which program `tandemq` is, rsync copies from folder to folder. Everything else is run by bash.
192.0.2.x is 127.0.2.x here, with ports of this run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from demo.node_process import TANDEMQ, NodeProcess
from tests.cluster.cluster_nodes import QUICK, until
from tests.deploy.conftest import DEPLOY
from tests.ports import free_ports

PAGE = DEPLOY.parent / "docs" / "operations.md"
WHEELS = ("tandemq-0.2.0-py3-none-any.whl", "tandemq_server-0.2.0-py3-none-any.whl")
_WHERE = re.compile(r"^#.*?\bOn (?:the new machine )?(\w)( and \w)?(?=[:, ])")
_UNIT = re.compile(r"tandemq@(\w+)")


def blocks(heading: str) -> list[str]:
    """The blocks of commands below a heading of the page."""
    page = PAGE.read_text(encoding="utf-8")
    assert f"\n## {heading}\n" in page
    part = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)


def parts(block: str) -> Iterator[tuple[str, str]]:
    """(names of machines, script) for each comment that says where."""
    names, lines = "", list[str]()
    for line in block.splitlines():
        if found := _WHERE.match(line):
            if lines:
                yield names, "\n".join(lines)
            names, lines = found[1] + (found[2] or "")[-1:], []
        else:
            lines.append(line)
    yield names, "\n".join(lines)


@dataclass
class Site:
    """Where everybody is. old: the words that run the first release's program, if it is here."""

    home: Path
    queue: int
    admin: int
    old: tuple[str, ...] = ()

    @classmethod
    def made(cls, home: Path, old: tuple[str, ...] = ()) -> Site:
        return cls(home, *free_ports(2), old)


class Machine:
    """One server. name: of its node; host: the last number of its address."""

    def __init__(self, site: Site, name: str, host: int, old: bool = False) -> None:
        self.site, self.name, self.host = site, name, host
        self.root = site.home / f"{name}{host}"
        for folder in ("root", "etc/tandemq", "opt/tandemq/bin", "var/lib/tandemq"):
            (self.root / folder).mkdir(parents=True)
        for wheel in WHEELS:
            (self.root / "root" / wheel).touch()
        self.program(site.old if old else (TANDEMQ,))
        self.node: NodeProcess | None = None
        self.token = ""
        systemd = DEPLOY / "systemd"
        for each in "ab":
            self.write(f"{each}.yaml", (systemd / f"{each}.yaml").read_text())
            self.write(f"{each}.env", (systemd / "node.env.example").read_text())

    @property
    def address(self) -> str:
        return f"127.0.2.{self.host}:{self.site.queue}"

    @property
    def admin(self) -> str:
        return f"127.0.2.{self.host}:{self.site.admin}"

    @property
    def data(self) -> Path:
        return self.root / "var/lib/tandemq" / self.name

    def write(self, name: str, text: str) -> None:
        (self.root / "etc/tandemq" / name).write_text(self.here(text))

    def program(self, words: tuple[str, ...]) -> None:
        path = self.root / "opt/tandemq/bin/tandemq"
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        path.chmod(0o755)

    def here(self, text: str) -> str:
        """A text of the documentation with this machine's folders, addresses and ports."""
        text = text.replace("127.0.0.1:8081", self.admin).replace("192.0.2.", "127.0.2.")
        text = text.replace(":3301", f":{self.site.queue}")
        return re.sub(r"(?<![\w/])/(etc|opt|root|var)/", rf"{self.root}/\1/", text)

    def run(self, script: str) -> str:
        """Commands, one after the other; what they printed."""
        said, waiting = "", list[str]()
        lines = script.replace("NAME", self.name).replace("-g tandemq ", "").splitlines()
        for line in lines:
            first = line.split()[0] if line.split() else ""
            if first == "systemctl" or first in ("rsync", "/opt/tandemq/bin/pip"):
                said += self._bash(waiting)
                waiting = []
                self._stand_in(first.rpartition("/")[2], shlex.split(self.here(line)))
            else:
                waiting.append(line)
        return said + self._bash(waiting)

    def _bash(self, lines: list[str]) -> str:
        if not lines:
            return ""
        text = self.here("chgrp() { :; }\n" + "\n".join(lines))
        env = {k: v for k, v in os.environ.items() if not k.startswith("TANDEMQ_")}
        env |= {"TANDEMQ_ADMIN_SERVER": self.admin, "TANDEMQ_SERVER": self.address}
        env |= {"TANDEMQ_ADMIN_TOKEN": self.token}
        done = subprocess.run(
            ["bash", "-euc", text],
            capture_output=True,
            text=True,
            env=env,
            cwd=self.root,
            timeout=120,
        )
        assert done.returncode == 0, f"{self.name}: {text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _stand_in(self, program: str, words: list[str]) -> None:
        if program == "pip":
            assert words[1] == "install", words
            found = {path.name for path in self.root.glob(f"root/{Path(words[-1]).name}")}
            assert found == set(WHEELS), "client and server are two wheels"
            self.program((TANDEMQ,))
        elif program == "rsync":
            host, _, target = words[-1].rpartition(":")
            other = self.site.home / f"{self.name}{host.rpartition('.')[2]}"
            assert self.node is None, "a copied directory must not run twice"
            target = str(other) + target.removeprefix(str(self.root))
            shutil.copytree(words[-2], Path(target) / Path(words[-2]).name, dirs_exist_ok=True)
        else:
            unit = _UNIT.fullmatch(words[-1])
            assert unit is not None, words
            assert unit[1] == self.name, f"{words} on the machine of {self.name}"
            self.systemctl(words[1], *words[2:-1])

    def systemctl(self, verb: str, *flags: str) -> None:
        if verb == "kill":
            assert self.node is not None
            assert self.node.process is not None
            assert flags == ("-s", "HUP")
            before = self.node.text().count("reload")
            self.node.process.send_signal(signal.SIGHUP)
            self._reloaded(before)
            return
        if verb in ("stop", "restart", "disable") and self.node is not None:
            assert self.node.end() == 0
            self.node = None
        if verb in ("start", "restart", "enable"):
            assert self.node is None
            self.node = self._service().start()

    def _reloaded(self, before: int) -> None:
        assert self.node is not None
        node = self.node
        until(lambda: node.text().count("reload") > before, 30)
        assert "reload refused" not in node.text(), node.text()

    def _service(self) -> NodeProcess:
        """What the unit file starts."""
        unit = (DEPLOY / "systemd" / "tandemq@.service").read_text().replace("%i", self.name)
        settings = dict(line.split("=", 1) for line in unit.splitlines() if line[:1].isupper())
        command, verb, *words = shlex.split(self.here(settings["ExecStart"]))
        lines = Path(self.here(settings["EnvironmentFile"].removeprefix("-"))).read_text()
        env = dict(one.split("=", 1) for one in lines.splitlines() if one[:1].isalpha())
        self.data.mkdir(exist_ok=True)
        log = self.root / "journal"
        words += QUICK
        return NodeProcess(log, *words, command=[command], verb=verb, env=env, cwd=self.data)

    def end(self) -> None:
        if self.node is not None:
            self.node.kill()


def first_release(folder: Path) -> tuple[str, ...]:
    """The words that run commit 8ab7980, the first release, out of this repository's history.

    Empty where the history is not here, as in an archive of the sources.
    """
    rooms = "drivers engine model node replication spaces statemachine storage tandemq wire"
    command = ["git", "-C", str(DEPLOY.parent), "archive", "8ab7980", *rooms.split()]
    made = subprocess.run(command, capture_output=True)
    if made.returncode:
        return ()
    folder.mkdir()
    subprocess.run(["tar", "x", "-C", str(folder)], input=made.stdout, check=True)
    begin = "import sys; from node.cli import main; sys.exit(main())"
    return "env", f"PYTHONPATH={folder}", sys.executable, "-P", "-c", begin
