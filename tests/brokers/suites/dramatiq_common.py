"""What Dramatiq's tests import from a file that is not in its source distribution."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from dramatiq import Worker

skip_in_ci = skip_on_windows = skip_on_pypy = pytest.mark.skipif(False, reason="")


@contextlib.contextmanager
def worker(*args: Any, **options: Any) -> Iterator[Worker]:
    made = Worker(*args, **options)
    try:
        made.start()
        yield made
    finally:
        made.stop()
