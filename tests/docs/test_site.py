"""The documentation site builds strictly, and every link and anchor of it leads somewhere.

mkdocs runs as a program of its own: its warnings are its own. `make site` is the same command.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
MKDOCS = str(Path(sys.executable).with_name("mkdocs"))
BUILD_SECONDS = 240


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MKDOCS, "build", "--strict", "--config-file", str(config), "--site-dir", str(site)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )


class Html(HTMLParser):
    """What a page can be jumped to, what it links to, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe") and "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon"):
            self.loaded.append(values["href"])

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Html]:
    """The pages of the site by their files."""
    directory = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path: Html(path.read_text("utf-8")) for path in directory.rglob("*.html")}


def problems(site: dict[Path, Html]) -> Iterator[str]:
    for path, page in site.items():
        # The page for what is not found is served at any depth: its links begin at the root.
        if path.name == "404.html":
            continue
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if there.is_dir():
                there /= "index.html"
            if not there.exists():
                yield f"{path.name}: {link}"
            elif parts.fragment and there in site:
                wanted = unquote(parts.fragment)
                if wanted not in site[there].ids and wanted != "__skip":
                    yield f"{path.name}: {link}: no such anchor"


def test_every_link_of_the_site_leads_somewhere(site: dict[Path, Html]) -> None:
    assert sum(len(page.links) for page in site.values()) > 1_000
    assert sorted(set(problems(site))) == []


def test_every_page_is_there_and_in_the_menu(site: dict[Path, Html]) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    made = {path.stem: page for path, page in site.items()}
    assert pages | {"index", "architecture", "changelog"} <= made.keys()
    menu = {urlsplit(link).path.removesuffix(".html") for link in made["calls"].links}
    assert pages - {"calls"} <= menu


def test_files_of_the_repository_that_pages_link_to_are_shown(site: dict[Path, Html]) -> None:
    shown = [page for path, page in site.items() if path.name == "worker.py.html"]
    assert len(shown) == 1
    program = (ROOT / "examples" / "worker.py").read_text("utf-8")
    assert "".join(program.split()) in "".join(shown[0].text.split())


def test_a_page_loads_nothing_from_elsewhere(site: dict[Path, Html]) -> None:
    loaded = {link for page in site.values() for link in page.loaded}
    assert loaded
    assert not [link for link in loaded if urlsplit(link).netloc]


def test_the_build_fails_for_what_leads_nowhere(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md"):
        (tmp_path / name).write_text(f"# {name}\n")
    (tmp_path / "README.md").write_text("# Front\n\n[log](docs/log.md), [gone](docs/gone.md)\n")
    (docs / "log.md").write_text(
        "# Log\n\n[a](none.md) [b](#none) [c](../tests/none.py) [d](../README.md#none)\n"
        "\n```\n[in](code.md)\n```\n"
    )
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\nhooks: [{ROOT / 'docs/_site/repository.py'}]\n"
        "nav: [index.md, architecture.md, changelog.md, log.md]\n"
    )
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1, done.stdout + done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith(("WARNING", "INFO"))]
    for wrong in ("gone.md", "none.md", "'#none'", "'tests/none.py'", "'index.md#none'"):
        assert [line for line in warnings if wrong in line], (wrong, done.stderr)
    assert "code.md" not in done.stderr
