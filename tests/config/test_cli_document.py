"""docs/cli.md says what the commands say, and TAB completes them in a real shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tandemq_server.cli import app, output
from tandemq_server.cli.document import MARK, SHARED, commands, page, tree
from tandemq_server.node import main as node_main

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = (ROOT / "docs/_site/cli.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/cli.md").read_text(encoding="utf-8")


def part(heading: str) -> str:
    return PAGE.partition(f"### {heading}\n")[2].partition("\n### ")[0]


def test_the_page_is_current() -> None:
    assert page(TEMPLATE) == PAGE, "run make docs"


def test_every_command_and_flag_is_on_it() -> None:
    found = dict(commands(tree()))
    assert {"tandemq put", "tandemq log dump", "tandemq work", "tandemq backup"} <= found.keys()
    for words, command in found.items():
        section = part(words)
        if same := re.search(r"^The same as \[`(.+)`\]", section, re.MULTILINE):
            section = part(same[1])
        above = PAGE.partition(f"### {words}\n")[0].rpartition("\n## ")[2].partition("\n### ")[0]
        if not re.search(r"^(Also|No flags shared) ", section, re.MULTILINE):
            section += above
        # What many commands have is explained once.
        section += "".join(
            part(title)
            for title, *_ in SHARED
            if f"(#{title.lower().replace(' ', '-')})" in section
        )
        assert command.help.split("\n")[0].split()[0] in section
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert parameter.opts[0] in section, (words, parameter.opts)


def test_a_template_without_its_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="the template has no"):
        page(TEMPLATE.replace(MARK, ""))


def test_exit_codes_are_those_of_the_commands() -> None:
    told = {int(code): text for code, text in re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.M)}
    assert "refused" in told.pop(output.REFUSED)
    assert "usage" in told.pop(output.USAGE)
    assert "reached" in told.pop(output.UNREACHABLE)
    assert "nothing there" in told.pop(output.NOTHING)
    assert "done" in told.pop(output.OK)
    assert "log failed" in told.pop(node_main.EXIT_DISK)
    assert "Ctrl-C" in told.pop(app.EXIT_INTERRUPTED)
    assert told == {}


@pytest.mark.integration
def test_completion_installs_and_answers_in_bash(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    tandemq = Path(sys.executable).with_name("tandemq")
    path = f"{tandemq.parent}:{os.environ['PATH']}"
    # Nobody listens there: no tubes, and no complaint.
    nobody = {"TANDEMQ_SERVER": "127.0.0.1:1"}
    env = {**os.environ, **nobody, "HOME": str(tmp_path), "PATH": path}
    # From a shell that stays: which one it is, is found among the processes above.
    install = f"{tandemq} --install-completion bash; exit $?"
    done = subprocess.run([bash, "-c", install], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    script = """
        . ~/.bashrc
        complete -p tandemq
        COMP_WORDS=(tandemq sw) COMP_CWORD=1
        _tandemq_completion tandemq; echo "${COMPREPLY[@]}"
        COMP_WORDS=(tandemq put jobs x --win) COMP_CWORD=4
        _tandemq_completion tandemq; echo "${COMPREPLY[@]}"
        COMP_WORDS=(tandemq take jo) COMP_CWORD=2
        _tandemq_completion tandemq; echo "${COMPREPLY[@]}"
    """
    said = subprocess.run([bash, "-c", script], env=env, capture_output=True, text=True, check=True)
    first, *answers = said.stdout.splitlines()
    assert "-F _tandemq_completion" in first
    assert answers == ["switchover", "--window", ""]
    assert said.stderr == ""
