"""The units everybody counts in: microseconds for time, bytes for sizes."""

from __future__ import annotations

SECOND_US = 1_000_000
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
