"""What happened to a task, told by the log: every step, who did it, where it went."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandemq_server.cli import main
from tests.cluster.cluster_nodes import Pair, pair

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("past")) as running:
        client = running.a.connect()
        client.call("queue.create_tube", "dead", "fifo")
        options = {"max_attempts": 2, "dead_letter": "dead"}
        client.call("queue.create_tube", "jobs", "fifottl", options)
        client.call("queue.tube.jobs:put_many", [[[{"order": number}] for number in range(300)]])
        client.call("queue.tube.jobs:put", {"order": "the one"})
        client.call("queue.tube.jobs:take_many", 300, 0)
        client.call("queue.tube.jobs:ack", 299)
        client.call("queue.tube.jobs:take", 0)
        client.call("queue.tube.jobs:release", 300, {"reason": "no address"})
        running.in_step()
        running.a.switch_to(running.b)
        client = running.b.connect()
        client.call("queue.tube.jobs:take", 0)
        client.call("queue.tube.jobs:release", 300, {"reason": "still none"})
        yield running


def told(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["history", *words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_each_step_with_its_call_state_node_and_reason(
    nodes: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = told(capsys, str(nodes.b.data), "jobs", "300")
    assert [(one["call"], one["state"], one["node"]) for one in steps] == [
        ("put", "ready", "a"),
        ("take", "taken", "a"),
        ("release", "ready", "a"),
        ("take", "taken", "b"),
        ("release", "gone", "b"),
    ]
    assert [one["reason"] for one in steps] == ["", "", "no address", "", "still none"]
    assert steps[-1]["moved"] == "to dead 0"
    assert all(one["session"] for one in steps[1:])
    letter = told(capsys, str(nodes.b.data), "dead", "0")
    assert (letter[0]["state"], letter[0]["moved"]) == ("ready", "from jobs 300")
    batch = told(capsys, str(nodes.b.data), "jobs", "299")
    assert [one["call"] for one in batch] == ["put_many", "take_many", "ack"]


def test_it_is_found_by_what_is_in_the_payload(
    nodes: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = told(capsys, str(nodes.b.data), "jobs", "--find", "the one")
    assert {one["id"] for one in steps} == {300}
    assert len(steps) == 5
    assert main(["history", str(nodes.b.data), "jobs", "300"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("task 300 of jobs")
    assert "gone to dead 0" in shown


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("jobs", "9999"), 4, "nothing of such a task"),
        (("nowhere", "1"), 4, "it knows no tube nowhere"),
        (("jobs",), 2, "give one of ID, --find TEXT and --field"),
        (("jobs", "1", "--find", "x"), 2, "give one of ID, --find TEXT and --field"),
    ],
)
def test_what_is_not_there(
    nodes: Pair,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    text: str,
) -> None:
    assert main(["history", str(nodes.b.data), *words]) == code
    assert text in capsys.readouterr().err


def test_no_directory_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(tmp_path), "jobs", "1"]) == 1
    assert "not a data directory" in capsys.readouterr().err


def test_the_admin_api_tells_it_while_the_node_serves(nodes: Pair) -> None:
    code, found = nodes.b.ask("/v1/past?tube=jobs&task=300")
    assert (code, len(found["steps"])) == (200, 5)
    assert found["steps"][-1]["moved"] == "to dead 0"
    assert nodes.b.ask("/v1/past?tube=jobs&task=99999")[1]["steps"] == []
    for wanted in ("find=the+one", "field=order%3Dthe+one"):
        code, found = nodes.b.ask(f"/v1/past?tube=jobs&{wanted}")
        assert (code, found["task"], len(found["steps"])) == (200, None, 5)
    for wanted in ("", "&task=1&find=x", "&field=x", "&find=%00"):
        assert nodes.b.ask(f"/v1/past?tube=jobs{wanted}")[0] == 422
