"""The units everybody counts in: microseconds for time, bytes for sizes."""

from __future__ import annotations

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
DAY_US = 24 * HOUR_US
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
