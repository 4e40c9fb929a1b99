"""kombu's own integration tests (t/integration/common.py) with this transport, not edited.

Run from kombu's source distribution, see run.sh.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import kombu
import pytest
from t.integration.common import (
    BaseExchangeTypes,
    BaseMessage,
    BasePriority,
    BasicFunctionality,
)

import tandemq.celery  # registers the transport
import tandemq.testing


@pytest.fixture
def connection() -> Any:
    with tandemq.testing.node(Path(tempfile.mkdtemp())) as node:
        yield kombu.Connection(f"tandemq://{node.address}")


@pytest.fixture
def invalid_connection() -> Any:
    return kombu.Connection("tandemq://127.0.0.1:12345", connect_timeout=0.5)


class TestBasicFunctionality(BasicFunctionality):
    pass


class TestExchangeTypes(BaseExchangeTypes):
    pass


class TestPriority(BasePriority):
    pass


class TestMessage(BaseMessage):
    pass
