"""What a command does not import: that is what keeps it quick. Times are benchmarks/start.py's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tandemq_server.cli import output
from tandemq_server.cli.app import HOMES, Commands, app

#: Each costs more than a tenth of the command it would be imported for.
FOREIGN = (
    *("aiohttp", "asynctnt", "importlib.metadata", "prometheus_client", "pydantic"),
    *("pydantic_settings", "rich", "tenacity", "uvloop", "yaml"),
)
OURS = ("tandemq_server.config.schema", "tandemq_server.engine", "tandemq_server.node.main")

RUN = """
import sys
sys.argv = ["tandemq", *{words!r}]
from tandemq.command import main
code = main()
print(*(name for name in {names!r} if name in sys.modules), file=sys.stderr)
"""


def imported(words: tuple[str, ...], names: tuple[str, ...]) -> set[str]:
    """Which of `names` a command has imported when it is done."""
    script = RUN.format(words=words, names=names)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stderr.splitlines()[-1].split()) if done.stderr.strip() else set()


@pytest.mark.parametrize("words", [("--help",), ("put", "--help"), ("serve", "--help")])
def test_help_imports_little(words: tuple[str, ...]) -> None:
    assert imported(words, (*FOREIGN, *OURS, "asyncio", "http.client", "json")) <= {"json"}


def test_a_put_imports_the_connector_and_little_else() -> None:
    found = imported(("put", "--server", "127.0.0.1:1", "jobs", "x"), (*FOREIGN, *OURS))
    assert found == {"asynctnt"}


def test_every_command_is_where_the_table_says() -> None:
    import typer

    tree = typer.main.get_command(app)
    assert isinstance(tree, Commands)
    for home, names in HOMES.items():
        part = typer.Typer()
        __import__(home, fromlist=["add_to"]).add_to(part)
        part.callback()(lambda: None)
        assert sorted(typer.main.get_group(part).commands) == sorted(names), home
        for name in names:
            assert tree.get_command(None, name) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("putt",), "No such command 'putt'. Did you mean 'put'"),
        (("put", "jobs", "x", "--pri", "high"), "Invalid value for '--pri'"),
        (("list", "jobs", "--limit", "0"), "Invalid value for '--limit'"),
        (("put", "jobs"), "Missing argument 'PAYLOAD...'"),
    ],
)
def test_what_is_wrong_is_told_as_before(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from tandemq.command import main

    assert main(list(words)) == 2
    assert told in capsys.readouterr().err


def test_a_node_without_peers_and_admin_api_is_ready_with_little(tmp_path: Path) -> None:
    words = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--guest", "all")
    # Asking for entry points reads about every package that is installed: nobody may.
    script = (
        "import importlib.metadata as m; m.entry_points = m.distributions = None; "
        f"import sys; sys.argv = ['tandemq', *{words!r}]; import tandemq.command as c; c.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        process.terminate()
        _, told = process.communicate(timeout=60)
    names = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert "tandemq_server.node.main" in names
    spared = {
        *("aiohttp", "asynctnt", "prometheus_client", "pydantic_settings", "rich", "tenacity"),
        *("ctypes", "encodings.idna", "pydantic.plugin._loader"),
        *("yaml", "http.client", "tandemq_server.admin", "tandemq_server.arbiters.open"),
        *("tandemq_server.wire.evaluate", "tandemq_server.node.observe.backend"),
        *("tandemq_server.node.observe.answers", "tandemq_server.node.observe.peer_status"),
    }
    assert names & spared == set()


@pytest.mark.parametrize(
    "rows", [[], [["1", "ready", '{"a": 1}'], ["22", "t", ""]], [["", "", "a long one"]]]
)
def test_a_table_is_drawn_as_the_library_would(
    rows: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    columns, right = ("id", "state", "payload"), ("id",)
    output._folded(columns, rows, right, 1000)
    assert "\n".join(output.plain_table(columns, rows, right)) + "\n" == capsys.readouterr().out
    output.table(columns, rows, right=right)
    again = capsys.readouterr().out
    output.table(columns, [*rows, ["3", "\N{GREEK SMALL LETTER ALPHA}", "x"]], right=right)
    assert again.splitlines()[0].split() == capsys.readouterr().out.splitlines()[0].split()


def test_a_table_imports_no_library() -> None:
    script = (
        "import sys; from tandemq_server.cli.output import table; table(('a',), [('b',)]); "
        "sys.exit('rich' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
