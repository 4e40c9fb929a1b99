"""Breaks one line of the product at a time and looks whether a test notices: `make mutants`.

The list is in the *.toml files beside this one: file, exact old text, new text, what the change
would do to users, and the tests that should see it. A mutant lives in a copy of the tree. What is
run against it, until something fails: its tests, a bounded simulation, its tests with real nodes.

    python -m tests.mutants.mutants [--only NAME]... [--file PART] [--jobs 2] [--seeds 300]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: Tests with real processes: last, as they are slow and a busy machine can upset them.
REAL_NODES = ("tests/cluster/", "tests/node/test_process.py")
STEP_SECONDS = 900


class Stale(Exception):
    """An entry of the list does not fit the code (any more)."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One line broken. harm: what users would see.

    harmless: why nothing is lost and nobody is lied to where it survives; empty: it must not.
    """

    name: str
    file: str
    old: str
    new: str
    harm: str
    tests: tuple[str, ...]
    harmless: str = ""

    def apply(self, text: str) -> str:
        """The file's text with the change. Raises `Stale` unless it applies exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise Stale(f"{self.name}: its old text is {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Fate:
    """What came of a mutant. caught_by: the test or seed that saw it, empty: it survived."""

    mutant: Mutant
    caught_by: str
    seconds: float


def load() -> list[Mutant]:
    """The whole list, by file of the list and then as written there."""
    found = []
    for path in sorted(HERE.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            entry["tests"] = tuple(entry["tests"])
            found.append(Mutant(**entry))
    return found


@contextmanager
def tree() -> Iterator[Path]:
    """A copy of what git knows or would know of this tree."""
    home = Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, names.decode().split("\0")):
            if (ROOT / name).is_symlink():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                (home / name).symlink_to((ROOT / name).readlink())
            elif (ROOT / name).is_file():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, home / name)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def broken(home: Path, mutant: Mutant) -> Iterator[None]:
    """The copy with the change in it."""
    path = home / mutant.file
    text = path.read_text(encoding="utf-8")

    def write(content: str) -> None:
        path.write_text(content, encoding="utf-8")
        # Two changes within a second may be of one size: what was compiled must not pass for both.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    write(mutant.apply(text))
    try:
        yield
    finally:
        write(text)


def run(home: Path, *command: str) -> tuple[int, str]:
    """(exit code, output) of a Python command in the copy; -1 when it took too long."""
    roots = os.pathsep.join(str(home / part) for part in ("", "src", "client"))
    env = os.environ | {"PYTHONPATH": roots, "PYTHONHASHSEED": "0"}
    # Two changes of one file in one second would share their byte code.
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    for name in ("CI", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        env.pop(name, None)
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=home,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=STEP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return -1, ""
    return process.returncode, output


def run_tests(home: Path, tests: list[str]) -> str:
    """The first test that fails, empty when none does. Raises RuntimeError for anything else."""
    if not tests:
        return ""
    options = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "120")
    code, output = run(home, "-m", "pytest", *options, *tests)
    if code == -1:
        return f"{tests[0]}: no end within {STEP_SECONDS} s"
    if code == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    if code == 1 and failed:
        return failed.group(1)
    if "Timeout" in output:
        return f"{tests[0]}: a test without end"
    raise RuntimeError(f"pytest ended with {code}:\n{output[-3000:]}")


def run_seeds(home: Path, first: int, count: int) -> str:
    """The first seed that shows a violation, and which; empty when none of them does."""
    code, output = run(home, "-m", "tests.mutants.seeds", str(first), str(count))
    if code == -1:
        return f"simulation: no end within {STEP_SECONDS} s"
    if code == 0:
        return ""
    seen = re.search(r"^(seed \d+: .*)$", output, re.MULTILINE)
    return f"simulation, {seen.group(1)[:90]}" if seen else f"simulation: {output[-200:]}"


def look(home: Path, mutant: Mutant, given: argparse.Namespace) -> Fate:
    began = time.monotonic()
    real = [test for test in mutant.tests if test.startswith(REAL_NODES)]
    with broken(home, mutant):
        caught = run_tests(home, [test for test in mutant.tests if test not in real])
        if not given.quick:
            caught = caught or run_seeds(home, given.first, given.seeds)
            caught = caught or run_tests(home, [] if given.no_nodes else real)
    return Fate(mutant, caught, time.monotonic() - began)


def baseline(home: Path, chosen: list[Mutant], given: argparse.Namespace) -> str:
    """What fails without any change: nothing may, or it would be taken for a catch."""
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    quick = [test for test in tests if not test.startswith(REAL_NODES)]
    red = run_tests(home, quick)
    return red if red or given.quick else run_seeds(home, given.first, given.seeds)


def table(fates: list[Fate]) -> str:
    """Counts by file, as Markdown."""
    by_file: dict[str, list[Fate]] = defaultdict(list)
    for fate in fates:
        by_file[fate.mutant.file].append(fate)
    lines = ["| File | Mutants | Caught by its tests | Only by simulation | Survived |"]
    lines.append("|---|---|---|---|---|")
    total = [0, 0, 0, 0]
    for file, found in sorted(by_file.items()):
        seeds = sum(fate.caught_by.startswith("simulation") for fate in found)
        alive = sum(not fate.caught_by for fate in found)
        row = [len(found), len(found) - seeds - alive, seeds, alive]
        total = [a + b for a, b in zip(total, row, strict=True)]
        lines.append(f"| `{file}` | " + " | ".join(map(str, row)) + " |")
    lines.append("| all | " + " | ".join(map(str, total)) + " |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Break one line at a time: does a test notice?")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--file", default="", help="mutants of files whose path has this in it")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--seeds", type=int, default=300, help="of the simulation (300)")
    parser.add_argument("--first", type=int, default=1, help="first seed (1)")
    parser.add_argument("--quick", action="store_true", help="no simulation, no real nodes")
    parser.add_argument("--no-nodes", action="store_true", help="no tests with real nodes")
    parser.add_argument("--list", action="store_true", help="show the list and end")
    parser.add_argument("--no-baseline", action="store_true", help="trust the tests to be green")
    return parser.parse_args()


def choose(given: argparse.Namespace) -> list[Mutant]:
    mutants = load()
    unknown = set(given.only) - {mutant.name for mutant in mutants}
    if unknown:
        raise Stale(f"no mutant is called {', '.join(sorted(unknown))}")
    chosen = [
        mutant
        for mutant in mutants
        if given.file in mutant.file and (not given.only or mutant.name in given.only)
    ]
    for mutant in chosen:
        mutant.apply((ROOT / mutant.file).read_text(encoding="utf-8"))
    return chosen


def main() -> int:
    given = arguments()
    try:
        chosen = choose(given)
    except Stale as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.list:
        for mutant in chosen:
            print(f"{mutant.name:45} {mutant.file:28} {mutant.harm}")
        return 0
    if not given.no_baseline:
        with tree() as home:
            if red := baseline(home, chosen, given):
                print(f"error: red without any mutant: {red}", file=sys.stderr)
                return 2
    fates = run_all(chosen, given)
    survived = [fate.mutant for fate in fates if not fate.caught_by]
    print(table(fates))
    print(f"{len(fates)} mutants, {len(fates) - len(survived)} caught, {len(survived)} survived")
    for mutant in survived:
        why = f"harmless, {mutant.harmless}" if mutant.harmless else mutant.harm
        print(f"  survived: {mutant.name} in {mutant.file}: {why}")
    return 1 if any(not mutant.harmless for mutant in survived) else 0


def run_all(chosen: list[Mutant], given: argparse.Namespace) -> list[Fate]:
    """Each worker has a tree of its own."""
    homes: SimpleQueue[Path] = SimpleQueue()

    def one(mutant: Mutant) -> Fate:
        home = homes.get()
        try:
            fate = look(home, mutant, given)
        finally:
            homes.put(home)
        how = f"caught by {fate.caught_by}" if fate.caught_by else f"SURVIVED: {mutant.harm}"
        print(f"{mutant.name:45} {fate.seconds:6.1f} s  {how}", flush=True)
        return fate

    with ThreadPoolExecutor(given.jobs) as pool, tree() as first, tree() as second:
        for home in (first, second)[: given.jobs]:
            homes.put(home)
        return list(pool.map(one, chosen))


if __name__ == "__main__":
    sys.exit(main())
