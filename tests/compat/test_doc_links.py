"""docs/compatibility.md: every test it names exists, every table row has one or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "compatibility.md"
LINK = re.compile(r"`([\w/]+\.py)::(\w+)`")
#: A cell of the table of connectors and features: the file, and the test with or without its step.
CELL = re.compile(r'\[[\w ]+\]\((\.\./[\w/]+\.py) "(\w+)(?:\[(?:v\d-)?([\w ]+)\])?"\)')
NAMED = re.compile(r"`([\w/-]+)` ([\d.]+)")
FEATURES = "### By feature"
TEXT = DOCUMENT.read_text()


def rows(heading: str | None = None) -> list[list[str]]:
    """Cells of all table rows, or of those under one heading; heads and rules left out."""
    text = TEXT
    if heading:
        text = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = []
    for line in text.splitlines():
        if line.startswith("| "):
            found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return [cells for cells in found if cells[-1] != "Tests"]


def features() -> list[list[str]]:
    """Cells of the table of connectors and features, without its head."""
    table = TEXT.split(FEATURES)[1].split("\n\n")[2]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()][
        2:
    ]


@pytest.mark.parametrize(("file", "test"), sorted(set(LINK.findall(TEXT))))
def test_linked_test_exists(file: str, test: str) -> None:
    assert re.search(rf"^(async )?def {test}\(", (HERE / file).read_text(), re.MULTILINE)


def test_every_feature_of_a_connector_names_its_test() -> None:
    for connector, *cells in features():
        for cell in cells:
            if cell in ("-", "by hand", "not run"):
                continue
            found = CELL.fullmatch(cell)
            assert found, (connector, cell)
            source = (DOCUMENT.parent / found[1]).read_text()
            assert re.search(rf"^(async )?def {found[2]}\(", source, re.MULTILINE), cell
            if found[3]:
                assert f'    "{found[3]}": ' in source, cell


def test_connectors_are_named_with_the_versions_that_run() -> None:
    """As the lock files of this repository have them."""
    told = {name: version for cells in features() for name, version in NAMED.findall(cells[0])}
    root, compat = DOCUMENT.parents[1], HERE
    locked = dict(
        re.findall(r"^([\w-]+)==(\S+)", (root / "requirements/test.txt").read_text(), re.MULTILINE)
    )
    assert {name: told[name] for name in ("tarantool", "asynctnt", "asynctnt-queue")} == {
        name: locked[name] for name in ("tarantool", "asynctnt", "asynctnt-queue")
    }
    for major, module in (2, "go"), (3, "go3"):
        name = f"go-tarantool/v{major}"
        assert f"{name} v{told[name]}" in (compat / module / "go.mod").read_text()
    node = (compat / "node/package.json").read_text()
    assert f'"tarantool-driver": "{told["tarantool-driver"]}"' in node
    assert f"<version>{told['cartridge-driver']}</" in (compat / "java/pom.xml").read_text()


def test_every_row_has_a_test_or_says_why_not() -> None:
    for cells in rows():
        if cells in features() or cells[0] == "Connector":
            continue
        proof = cells[-1]
        if LINK.search(proof):
            continue
        told = " ".join(cells)
        assert "not here" in told or "(tests of" in told, cells


def test_every_defect_has_its_row_and_its_own_test() -> None:
    table = rows("Defects of the original")
    assert [int(cells[0]) for cells in table] == list(range(1, 43))
    for cells in table:
        for _, test in LINK.findall(cells[-1]):
            assert test.startswith(f"test_defect_{int(cells[0]):02}_")


def test_every_test_file_is_linked() -> None:
    """But for the tests of the documentation itself."""
    linked = {file for file, _ in LINK.findall(TEXT)}
    assert linked == {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
