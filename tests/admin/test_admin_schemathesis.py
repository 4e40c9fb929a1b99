"""Generated requests against a real node: no server error, no answer its document does not have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tandemq_server.admin.openapi import document
from tests.cluster.cluster_nodes import Member, free_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),
]
#: Of each path and method.
EXAMPLES = 12
#: What never ends is not a request and an answer.
ENDLESS = "/v1/events"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    port, admin = free_ports(2)
    member = Member(tmp_path_factory.mktemp("schemathesis"), "a", port, admin, []).start()
    client = member.connect()
    for name in ("jobs", "0"):
        client.call("queue.create_tube", name, "fifottl")
        for number in range(5):
            client.call(f"queue.tube.{name}:put", {"n": number})
    client.call("queue.tube.jobs:take", 0)
    yield member
    client.close()
    member.end()


@pytest.fixture(scope="module")
def schema(node: Member):
    """As the node serves it."""
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{node.admin_port}/openapi.json")


OPERATIONS = [
    (path, method)
    for path, item in document()["paths"].items()
    for method in item
    if path != ENDLESS
]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_answer_is_documented(schema, path: str, method: str) -> None:
    asked = 0

    @given(case=schema[path][method.upper()].as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case) -> None:
        nonlocal asked
        asked += 1
        answer = case.call(timeout=30)
        # 503 is what a probe may answer; its body is checked against what the document says.
        checks = CHECKS if answer.status_code != 503 else CHECKS[1:]
        case.validate_response(answer, checks=checks)

    ask()
    assert asked


def test_an_answer_that_is_not_documented_is_found(node: Member) -> None:
    lame = document()
    del lame["paths"]["/v1/tubes"]["get"]["responses"]["422"]
    schema = schemathesis.openapi.from_dict(lame)
    schema.config.update(base_url=f"http://127.0.0.1:{node.admin_port}")
    case = schema["/v1/tubes"]["GET"].Case(query={"limit": 0})
    with pytest.raises(BaseException, match="Undocumented status code"):
        case.validate_response(case.call(), checks=CHECKS)


def test_the_node_lives_and_complained_of_no_bug(node: Member) -> None:
    assert node.status()["live"]
    assert "Traceback" not in node.text()
    assert "failed" not in node.text()
