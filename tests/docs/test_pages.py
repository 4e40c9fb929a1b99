"""Every command block of README and tutorial is run, in order, on real nodes, and compared.

Not run as they stand are `make run` and `make test`, which take minutes: the first is run here with
few URLs, the second is what CI itself is.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, PageFailed, Reader, Step, Words, agrees, steps

pytestmark = pytest.mark.integration
README = ROOT / "README.md"


@pytest.fixture(scope="module", autouse=True)
def _set_up() -> None:
    """`make setup` of the pages must have nothing to do, or it would install another directory."""
    done = subprocess.run(["make", "-C", str(ROOT), "--question", "setup"], capture_output=True)
    assert done.returncode == 0, "run make setup"


def test_the_readme_happens_as_told(tmp_path: Path) -> None:
    left_out = Reader(README, tmp_path / "tandem").read()
    assert [
        [line.split("#")[0].strip() for line in step.text.splitlines()] for step in left_out
    ] == [["make run", "make cluster"]]


@pytest.mark.parametrize("page", ["tutorial.md", "tube-types.md"])
def test_a_page_happens_as_told(tmp_path: Path, page: str) -> None:
    assert Reader(ROOT / "docs" / page, tmp_path / "tandem").read() == []


def test_make_run_with_few_urls_ends_well() -> None:
    command = ["make", "run", "ARGS=--single --limit 300 --workers 4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("verdict: ok")


def test_make_test_is_what_ci_runs() -> None:
    assert "make test" in README.read_text(encoding="utf-8")
    last = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1]
    assert last == "exec make test"


PAGE = """\
Text.

<!-- test: varies='[0-9]+ ms' -->
```console
$ echo one; echo "took 17 ms"
one
took 3 ms
$ printf 'two\\n\\n  three   four\\n'; printf 'five\\n'
two
...
five
```

```text title="file.txt"
listens on 3301
```

```sh
test -f file.txt
```

<!-- test: terminal=other stays -->
```console
$ cat file.txt; sleep 60
listens on 3301
```

<!-- test: interrupts=other -->
<!-- test: exit=3 -->
```console
$ exit_code() { return 3; }; exit_code
```
"""


def read(tmp_path: Path, text: str) -> list[Step]:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return Reader(page, tmp_path / "tandem").read()


def test_a_page_that_tells_the_truth(tmp_path: Path) -> None:
    assert read(tmp_path, PAGE) == []
    assert "3301" not in (tmp_path / "tandem" / "file.txt").read_text()


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("\none\n", "\nnone\n", "what came\none"),
        ("took 3 ms", "took 3 s", "what came\none"),
        ("five\n```", "six\n```", "five"),
        ("test -f file.txt", "test -f none.txt", "exit code 1"),
        ("test: exit=3", "test: exit=4", "exit code 3"),
        (
            "listens on 3301\n```\n\n<!-- test: int",
            "on 3302\n```\n\n<!-- test: int",
            "listens on 3301",
        ),
    ],
)
def test_a_page_that_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str, reason: str
) -> None:
    assert right in PAGE
    if "listens" in right:
        # What never comes is waited for: the others have an end.
        monkeypatch.setattr("tests.docs.pages.COMMAND_SECONDS", 2.0)
    with pytest.raises(PageFailed) as failed:
        read(tmp_path, PAGE.replace(right, wrong))
    assert reason in str(failed.value)


def test_nothing_is_passed_over() -> None:
    for text in ("```yaml\na: 1\n```\n", "  ```sh\n```\n```sh\n", "<!-- test: jumps -->\n"):
        with pytest.raises(ValueError):
            steps(text)


def test_order_matters_unless_the_page_says_otherwise() -> None:
    assert not agrees("a\nb\n", "b\na\n", Words())
    assert agrees("a\nb\n", "b\na\n", Words(flags={"any-order"}))
    assert not agrees("a\nb\n", "b\nc\n", Words(flags={"any-order"}))
