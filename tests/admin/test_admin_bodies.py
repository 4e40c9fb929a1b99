"""Each mistake in a body has its words, and says what would be accepted; programs show them."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq_server.admin import bodies
from tandemq_server.admin.problems import Problem

TUBE = {"tube": "jobs", "action": "alter"}
TASKS = {"tube": "jobs", "action": "kick"}
IDS = "1 to 500 task ids"
NODE = "a node's name, 1 to 63 characters"
SIDES, ACTIONS = ("puts", "takes"), ("kick", "bury", "release", "delete", "move")


@pytest.mark.parametrize(
    ("model", "body", "field", "detail", "accepted"),
    [
        (bodies.ReadOnlyRequest, {}, "read_only", "is missing", [True, False]),
        (bodies.ReadOnlyRequest, {"read_only": 1}, "read_only", "is not a bool", [True, False]),
        (bodies.EmptyBody, {"a": 1}, "a", "is not a field of this request", []),
        (bodies.SwitchoverRequest, {"to": None}, "to", "is not a str", NODE),
        (bodies.SwitchoverRequest, {"to": ""}, "to", "has 0 characters", NODE),
        (bodies.SwitchoverRequest, {"to": "x" * 64}, "to", "has 64 characters", NODE),
        (bodies.SwitchoverRequest, {"to": "\ud800"}, "to", "has half a surrogate pair", NODE),
        (bodies.TasksRequest, {**TASKS, "action": 3}, "action", "is not a str", ACTIONS),
        (bodies.TasksRequest, {**TASKS, "action": "x"}, "action", "is not one of these", ACTIONS),
        (
            bodies.TasksRequest,
            {**TASKS, "ids": None},
            "ids",
            "is not an array",
            IDS,
        ),
        (bodies.TasksRequest, {**TASKS, "ids": []}, "ids", "has 0 items", IDS),
        (
            *(bodies.TasksRequest, {**TASKS, "ids": [True, -1, 2**63, "1"]}, "ids"),
            *("has an item that is not a task id", IDS),
        ),
        (bodies.TasksRequest, {**TASKS, "limit": 0}, "limit", "is out of range", "1 to 10000"),
        (bodies.TasksRequest, {**TASKS, "limit": 1.0}, "limit", "is not an int", "1 to 10000"),
        (bodies.TubeRequest, {**TUBE, "what": "\ud800"}, "what", "is not one of these", SIDES),
        (
            *(bodies.TubeRequest, {**TUBE, "options": {}}, "options", "has 0 members"),
            "options of the tube, null for a default",
        ),
    ],
)
def test_a_mistake_has_its_words(
    model: type[bodies.Body], body: dict[str, Any], field: str, detail: str, accepted: Any
) -> None:
    with pytest.raises(Problem) as caught:
        bodies.check_body(body, model)
    error = {"field": field, "detail": detail, "accepted": accepted}
    assert (caught.value.status, caught.value.more["errors"]) == (422, [error])
    assert caught.value.detail == f"{field}: {detail}"


def test_unknown_fields_are_told_first_then_the_others_in_their_order() -> None:
    body = {"froce": 1, "action": "x", "tube": 3}
    with pytest.raises(Problem) as caught:
        bodies.check_body(body, bodies.TubeRequest)
    assert [one["field"] for one in caught.value.more["errors"]] == ["froce", "tube", "action"]


def test_what_is_left_out_is_filled_in() -> None:
    found = bodies.check_body({**TASKS, "ids": [0, 2**63 - 1]}, bodies.TasksRequest)
    assert found == {
        **TASKS,
        "ids": [0, 2**63 - 1],
        **dict.fromkeys(("state", "to", "limit")),
        "dry_run": False,
    }
