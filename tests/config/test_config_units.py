"""Sizes, durations and addresses as people write them, and as they are shown again."""

from __future__ import annotations

import pytest

from tandemq_server.config.units import (
    is_loopback,
    parse_bytes,
    parse_seconds,
    show_bytes,
    show_seconds,
    split_address,
)

BAD_SIZES = ["", "5 apples", "0.3", "-1", "1e9", None, True, 1.5, "MiB"]
BAD_DURATIONS = ["", "5x", "1h30", "s", "nan", "inf", "1 2", None, True, float("nan"), "--1"]
BAD_ADDRESSES = ["", "a", ":1", "a:", "a:b", "a:65536", "a:-1", "[::1]", "[x]:1", "a b:1", "::1:80"]


@pytest.mark.parametrize(
    ("text", "size"),
    [(7, 7), ("7", 7), ("1KiB", 1024), ("1.5 MiB", 3 << 19), ("2 g", 2 << 30), ("3kB", 3000),
     (" 10B ", 10), ("9007199254740993", 9007199254740993)],
)  # fmt: skip
def test_sizes(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", BAD_SIZES)
def test_bad_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "duration"),
    [(5, 5), (0.5, 0.5), ("5", 5), ("500ms", 0.5), ("1h30m", 5400), ("2 d", 172_800), ("-1s", -1),
     ("1m 30s", 90), ("10us", 0.00001)],
)  # fmt: skip
def test_durations(text: str | float, duration: float) -> None:
    assert parse_seconds(text) == pytest.approx(duration)


@pytest.mark.parametrize("text", BAD_DURATIONS)
def test_bad_durations(text: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [("127.0.0.1:3301", ("127.0.0.1", 3301)), ("[::1]:0", ("::1", 0)),
     ("node-a.example:65535", ("node-a.example", 65535))],
)  # fmt: skip
def test_addresses(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


@pytest.mark.parametrize("text", BAD_ADDRESSES)
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|port"):
        split_address(text)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.0.2.1", False), ("example", False)],
)  # fmt: skip
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1 << 20, (1 << 20) + 1, 5 << 30])
def test_shown_sizes_can_be_read(size: int) -> None:
    assert parse_bytes(show_bytes(size)) == size


@pytest.mark.parametrize("duration", [0.0, 0.05, 1.0, 59.0, 3600.0, 86_400.0 * 365])
def test_shown_durations_can_be_read(duration: float) -> None:
    assert parse_seconds(show_seconds(duration)) == pytest.approx(duration)
