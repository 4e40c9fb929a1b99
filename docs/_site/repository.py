"""Hooks of the site's build: what stands outside docs/ becomes part of the site, too.

README, ARCHITECTURE and CHANGELOG are pages; a file that any page links to is shown on a page of
its own under source/. A link that leads nowhere is a warning, which ends a strict build.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

log = get_plugin_logger("repository")
#: Pages of the site to where they stand in the repository.
ROOT_PAGES = {
    "index.md": "README.md",
    "architecture.md": "ARCHITECTURE.md",
    "changelog.md": "CHANGELOG.md",
}
FRONT = {origin: page for page, origin in ROOT_PAGES.items()}
LINK = re.compile(r"(?<=\]\()([^)\s#]+)")
FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.DOTALL | re.MULTILINE)
LANGUAGES = {".py": "python", ".md": "markdown", ".yaml": "yaml", ".yml": "yaml", ".sh": "bash"}


def root(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent


def origin(page: str) -> str:
    """Where a page of the site stands in the repository."""
    return ROOT_PAGES.get(page, f"docs/{page}")


def target(page: str, link: str) -> str:
    """What a link of a page means, from the repository's root."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin(page)), link))


def place(path: str) -> str | None:
    """The page of the site for a path of the repository; None for what a page of it cannot be."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return FRONT.get(path) or f"source/{path}.md"


def links(text: str) -> Iterator[str]:
    """Links that stay in the repository, code left out."""
    for link in LINK.findall(FENCE.sub("", text)):
        if "://" not in link and not link.startswith(("mailto:", "/")):
            yield link


def source_page(path: str, text: str) -> str:
    language = LANGUAGES.get(Path(path).suffix, "text")
    return (
        f"---\nsearch:\n  exclude: true\nhide: [toc, navigation]\n---\n# {path}\n\n"
        f"~~~~~~{language}\n{text}\n~~~~~~\n"
    )


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not stand in docs/."""
    for page, path in ROOT_PAGES.items():
        text = (root(config) / path).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    wanted: dict[str, str] = {}
    for file in files.documentation_pages():
        for link in links(file.content_string):
            path = target(file.src_uri, link)
            if not path.startswith("docs/") and path not in FRONT:
                wanted.setdefault(path, file.src_uri)
    for path, page in sorted(wanted.items()):
        if not (root(config) / path).is_file():
            log.warning(f"{origin(page)} links to '{path}', which is no file of the repository")
            continue
        text = (root(config) / path).read_text(encoding="utf-8")
        content = source_page(path, text)
        files.append(
            File.generated(
                config, f"source/{path}.md", content=content, inclusion=InclusionLevel.NOT_IN_NAV
            )
        )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    known = set(links(markdown))

    def rewrite(found: re.Match[str]) -> str:
        link = found[1]
        if link not in known:
            return link
        there = place(target(uri, link))
        return posixpath.relpath(there, posixpath.dirname(uri)) if there else link

    return LINK.sub(rewrite, markdown)
