"""An S3 server for tests: moto's."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.cluster_nodes import until
from tests.ports import free_port

MOTO = Path(__file__).parents[1] / ".tools" / "moto"
#: What its clients need in their environment.
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}


@contextmanager
def bucket() -> Iterator[str]:
    """URI of a place in a bucket, with %s for it. Without moto: skipped, or failed in CI."""
    found = sorted(MOTO.glob("*/bin/moto_server"))
    if not found:
        if os.environ.get("CI") == "true":
            pytest.fail("moto is missing: make tools")
        pytest.skip("no moto: make tools")
    port = free_port()
    server = subprocess.Popen(
        [found[-1], "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    made = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")

    def is_there() -> bool:
        try:
            with urllib.request.urlopen(made, timeout=5):
                return True
        except OSError:
            return False

    try:
        until(is_there, seconds=60)
        yield f"s3://bucket/%s?endpoint_override=127.0.0.1:{port}&scheme=http"
    finally:
        server.terminate()
        server.wait()
