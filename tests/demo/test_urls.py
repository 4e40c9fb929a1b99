"""Reading the demonstration's URLs: package lists, files, hosts.

Here: pure reading, temporary files. Must not be here: apt itself, the network.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.urls import NoUrls, homepages, host_of, read_file, unique

PACKAGES = """\
Package: one
Homepage: https://Example.org/one
Description: says Homepage: not this

Package: two
Homepage:   https://example.org/two

Package: one-doc
Homepage: https://Example.org/one
"""


def test_homepages_each_once_in_order() -> None:
    assert homepages(PACKAGES.splitlines()) == [
        "https://Example.org/one",
        "https://example.org/two",
    ]


def test_unique_leaves_out_blanks_and_comments() -> None:
    assert unique(["b", "", "  ", "# c", "a ", "b"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.org/one", "example.org"),
        ("http://example.org:8080/", "example.org"),
        ("http://user@example.org./", "example.org"),
        ("https://[::1]:80/x", "::1"),
        ("www.example.org/x", "www.example.org"),
        ("example.org", "example.org"),
        ("http://[broken/x", "[broken"),
        ("ftp://", "ftp:"),
        ("?", "?"),
    ],
)
def test_host_of(url: str, host: str) -> None:
    assert host_of(url) == host


def test_read_file(tmp_path: Path) -> None:
    path = tmp_path / "urls.txt"
    path.write_text("# mine\nhttps://a.org/\n\nhttps://b.org/\nhttps://a.org/\n")
    assert read_file(path) == ["https://a.org/", "https://b.org/"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NoUrls, match=r"--urls .*none: No such file"):
        read_file(tmp_path / "none")


def test_a_file_without_urls(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_text("# nothing\n")
    with pytest.raises(NoUrls, match="no URL in it"):
        read_file(path)
