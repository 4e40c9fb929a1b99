"""Runs what a Markdown page tells its reader to run, in order, in real terminals.

A `console` block is commands behind `$ ` and what they print; an `sh` block commands alone; a block
with a `title` is a file of that name. Comments before a block say what a reader just sees:

    <!-- test: terminal=b stays varies='\\d+ ms' -->

terminal=NAME: which one, `main` unless given. stays: the last command goes on running. varies=RE:
text that differs from run to run. any-order: so do the lines. repeats: until it prints what is
shown. exit=N: of the last command. not-run=REASON. On their own: opens=URL, interrupts=TERMINAL
(Ctrl-C).
A line `...` on the page stands for any lines. Ports on the page are replaced by free ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
PORTS = ("3301", "3302", "8081", "8082")
COMMAND_SECONDS = 60.0
END_SECONDS = 60.0
REPEAT_SECONDS = 0.3
AGAIN_SECONDS = 1.0
_ITEM = re.compile(
    r"^<!-- test: (?P<words>[^\n]*?) -->$"
    r"|^```(?P<kind>\w+)?(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NOISE = re.compile(r"^(bash: line \d+: +\d+ (Killed|Terminated|Interrupt)|\[\d+\])")


@dataclass
class Words:
    """What comments before a block say."""

    terminal: str = "main"
    flags: set[str] = field(default_factory=set)
    varies: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)

    KNOWN = frozenset({"stays", "any-order", "repeats", "exit", "not-run", "opens", "interrupts"})

    def add(self, text: str) -> None:
        for word in shlex.split(text):
            name, equals, value = word.partition("=")
            if name == "terminal":
                self.terminal = value
            elif name == "varies":
                self.varies.append(value)
            elif name not in self.KNOWN:
                raise ValueError(f"unknown word {name!r}")
            elif equals:
                self.values[name] = value
            else:
                self.flags.add(name)


@dataclass
class Step:
    """A block of a page, or a comment on its own (kind empty)."""

    line: int
    words: Words
    kind: str = ""
    title: str | None = None
    text: str = ""

    def commands(self) -> list[tuple[str, str]]:
        """Each command and what the page shows of its output."""
        if self.kind == "sh":
            return [(self.text, "")]
        found: list[tuple[str, str]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], ""))
            elif found and found[-1][0].endswith("\\") and not found[-1][1]:
                found[-1] = (found[-1][0] + "\n" + line, "")
            elif found:
                found[-1] = (found[-1][0], found[-1][1] + line + "\n")
            else:
                raise ValueError(f"line {self.line}: output before the first command")
        return found


def steps(text: str) -> list[Step]:
    """Every block of a page and every comment on its own. Raises for what cannot be run."""
    found: list[Step] = []
    words = Words()
    for item in _ITEM.finditer(text):
        line = text.count("\n", 0, item.start()) + 1
        if item["words"] is not None:
            words.add(item["words"])
            if words.values.keys() & {"opens", "interrupts"}:
                found.append(Step(line, words))
                words = Words()
            continue
        kind = item["kind"] or ""
        if (
            "not-run" not in words.values
            and item["title"] is None
            and kind not in ("console", "sh")
        ):
            raise ValueError(f"line {line}: a block {kind!r} that is neither run nor a file")
        found.append(Step(line, words, kind, item["title"], item["text"]))
        words = Words()
    fences = len(re.findall(r"^```", text, re.MULTILINE))
    if fences != 2 * sum(bool(step.kind) for step in found):
        raise ValueError("a block that was not understood")
    return found


def lines_of(text: str, varies: list[str]) -> list[str]:
    """What is compared: no widths of columns, no blank lines, `~` for what varies."""
    for pattern in varies:
        text = re.sub(pattern, "~", text, flags=re.MULTILINE)
    lines = [re.sub(r"─+", "─", re.sub(r"\s+", " ", line)).strip() for line in text.splitlines()]
    return [line for line in lines if line and not _NOISE.match(line)]


def agrees(shown: str, printed: str, words: Words) -> bool:
    wanted, got = lines_of(shown, words.varies), lines_of(printed, words.varies)
    if "any-order" in words.flags:
        return sorted(wanted) == sorted(got)
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "..." else re.escape(line) + "\n" for line in wanted
    )
    return re.fullmatch(pattern, "".join(line + "\n" for line in got)) is not None


class Terminal:
    """A shell, what is typed into it, and what came out."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment,
            start_new_session=True,
            # Whoever started the tests in the background left Ctrl-C ignored: not so a terminal.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.output = b""
        self.seen = 0
        self.marks = 0
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        # Each command is a process group of its own, as in a terminal; Ctrl-C is its alone.
        self._write("set -m; trap : INT\n")

    def _read(self) -> None:
        assert self.process.stdout is not None
        while chunk := self.process.stdout.read1():  # type: ignore[attr-defined]
            with self.news:
                self.output += chunk
                self.news.notify_all()

    def _write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def type(self, command: str) -> bytes:
        """Start a command; the mark that the shell prints when it has ended."""
        self.marks += 1
        mark = f"<<end {self.marks} "
        self._write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s%s>>\\n' '{mark}' $?\n")
        return mark.encode()

    def text(self) -> str:
        """What came since somebody looked last, without the ends of commands."""
        with self.news:
            fresh = self.output[self.seen :].decode()
        return re.sub(r"\n?<<end \d+ \d+>>\n", "", fresh)

    def looked(self) -> None:
        with self.news:
            self.seen = len(self.output)

    def ended(self, mark: bytes) -> int | None:
        """The exit code of a command that has ended."""
        with self.news:
            found = re.search(re.escape(mark) + rb"(\d+)>>\n", self.output)
        return int(found[1]) if found else None

    def _running(self, jobs: Path) -> list[str]:
        """What the shell's children are, and what they do, as far as /proc tells."""
        found = [] if self.process.poll() is None else ["a shell that is gone"]
        for job in jobs.read_text().split() if jobs.exists() else ():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{job}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(f"{words}({Path(f'/proc/{job}/wchan').read_text()})")
        return found

    def interrupt(self, seconds: float) -> None:
        """Ctrl-C: the newest job of the shell. Returns when it has ended; its last words pass."""
        pid = self.process.pid
        jobs = Path(f"/proc/{pid}/task/{pid}/children")
        mark = f"<<end {self.marks} ".encode()
        deadline = time.monotonic() + seconds
        # Pressed again when it met a command that was ending anyway, with another one behind it.
        while mark not in self.output:
            if time.monotonic() > deadline:
                raise AssertionError(f"Ctrl-C does not end {self._running(jobs)}: {self.output!r}")
            for job in jobs.read_text().split()[-1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int(job), signal.SIGINT)
            with self.news:
                self.news.wait_for(lambda: mark in self.output, AGAIN_SECONDS)
        self.looked()

    def close(self) -> None:
        """End whatever was started here and still runs; the shell is its session's leader."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    if os.getsid(int(entry.name)) == self.process.pid:
                        os.kill(int(entry.name), signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class PageFailed(AssertionError):
    """A page tells something else than what happens."""


class Reader:
    """Somebody who does what a page says, in a directory that looks like the repository."""

    def __init__(self, page: Path, directory: Path) -> None:
        self.page = page
        self.directory = directory
        directory.mkdir()
        for entry in ROOT.iterdir():
            if entry.name not in (".git", ".venv", "data", "site"):
                (directory / entry.name).symlink_to(entry)
        (directory / ".venv").symlink_to(sys.prefix)
        self.ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        self.terminals: dict[str, Terminal] = {}

    def outward(self, text: str) -> str:
        """Text of the page with the ports of this run; `make cluster` is told them."""
        text = text.replace("make cluster", f"make cluster ARGS='--ports {','.join(PORTS)}'")
        return re.sub("|".join(PORTS), lambda found: self.ports[found[0]], text)

    def inward(self, text: str) -> str:
        """Output with the ports of the page."""
        back = {mine: theirs for theirs, mine in self.ports.items()}
        return re.sub("|".join(back), lambda found: back[found[0]], text)

    def terminal(self, name: str) -> Terminal:
        if name not in self.terminals:
            environment = {
                name: value for name, value in os.environ.items() if not name.startswith("TANDEMQ")
            }
            environment |= {"PYTHONUNBUFFERED": "1", "COLUMNS": "120"}
            # The commands' own defaults are ports of the page, too.
            environment["TANDEMQ_SERVER"] = f"127.0.0.1:{self.ports['3301']}"
            environment["TANDEMQ_ADMIN_SERVER"] = f"127.0.0.1:{self.ports['8081']}"
            self.terminals[name] = Terminal(self.directory, environment)
        return self.terminals[name]

    def read(self) -> list[Step]:
        """Do all of it; the steps the page says are not run."""
        left_out = []
        try:
            for step in steps(self.page.read_text(encoding="utf-8")):
                if "not-run" in step.words.values:
                    left_out.append(step)
                else:
                    self.do(step)
        finally:
            for terminal in self.terminals.values():
                terminal.close()
        return left_out

    def do(self, step: Step) -> None:
        values = step.words.values
        if "opens" in values:
            with urllib.request.urlopen(self.outward(values["opens"]), timeout=10) as answer:
                if b"<title>" not in answer.read():
                    raise self.failed(step, values["opens"], "a page", "something else")
        elif "interrupts" in values:
            self.terminal(values["interrupts"]).interrupt(END_SECONDS)
        elif step.title is not None:
            (self.directory / step.title).write_text(self.outward(step.text), encoding="utf-8")
        else:
            commands = step.commands()
            for number, (command, shown) in enumerate(commands, 1):
                self.run(step, command, shown, last=number == len(commands))

    def run(self, step: Step, command: str, shown: str, *, last: bool) -> None:
        terminal = self.terminal(step.words.terminal)
        stays = "stays" in step.words.flags and last
        code = int(step.words.values.get("exit", "0")) if last else 0
        deadline = time.monotonic() + COMMAND_SECONDS
        # `# ...` alone: nothing is typed, the reader looks at what came meanwhile.
        looks = command.startswith("#")
        mark = b"" if looks else terminal.type(self.outward(command))
        while True:
            with terminal.news:
                terminal.news.wait(0.1)
            printed = self.inward(terminal.text())
            ended = terminal.ended(mark) if mark else None
            good = step.kind == "sh" or agrees(shown, printed, step.words)
            if looks or stays:
                done = good or (stays and ended is not None)
            else:
                done = ended is not None
            if done and (good and ended in (None, code)):
                terminal.looked()
                return
            if done and "repeats" in step.words.flags and time.monotonic() < deadline - 1:
                time.sleep(REPEAT_SECONDS)
                terminal.looked()
                mark = terminal.type(self.outward(command))
            elif done or terminal.process.poll() is not None or time.monotonic() > deadline:
                raise self.failed(step, command, shown, f"{printed}(exit code {ended})")

    def failed(self, step: Step, command: str, shown: str, printed: str) -> PageFailed:
        where = f"{self.page.name}, block at line {step.line}: {command}"
        return PageFailed(f"{where}\n-- the page shows\n{shown}\n-- what came\n{printed}")
