"""What etcd's client makes of each answer to a swap, answers written by hand: no server is asked.

Whoever takes a swap for its own that is another's leads beside it; whoever is told that it has
nothing while it may have the seat gives up what nobody else will take.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from tandemq_server.arbiters.base import ArbiterRefused, SwapLost, Unreachable, seat_map
from tandemq_server.arbiters.endpoints import NoAnswer
from tandemq_server.arbiters.etcd import Etcd
from tandemq_server.arbiters.etcd_calls import No, b64
from tandemq_server.statemachine.seat import SeatReading
from tests.arbiters.arbiter_worlds import a_seat

pytestmark = pytest.mark.asyncio
DENIED, UNKNOWN = 7, 2
Answer = Exception | Callable[[Any], Any]


def client(*answers: Answer) -> Etcd:
    """A client whose calls are answered one after the other with these."""
    etcd = Etcd(("http://nowhere",), "c")
    left = list(answers)
    asked: list[Any] = []

    async def call(_url: str, path: str, body: Any) -> Any:
        asked.append(body if path.endswith("txn") else asked[-1])
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(asked[-1])

    etcd._calls.call = call  # type: ignore[method-assign]
    return etcd


def standing(value: Any, revision: int) -> dict[str, Any]:
    encoded = value if isinstance(value, str) else b64(json.dumps(value).encode())
    return {"kvs": [{"value": encoded, "mod_revision": str(revision)}]}


def lost(value: Any, revision: int = 8) -> Answer:
    found = {"response_range": standing(value, revision)}
    return lambda _body: {"header": {"revision": "9"}, "responses": [found]}


def own(body: Any) -> str:
    """The value the swap at hand wrote."""
    return str(body["success"][0]["request_put"]["value"])


MINE = a_seat()
ANOTHERS = {**seat_map(a_seat(2)), "swap": "of somebody else"}


async def test_a_swap_that_was_made() -> None:
    etcd = client(lambda _body: {"succeeded": True, "header": {"revision": "9"}})
    assert await etcd.swap(7, MINE) == SeatReading(MINE, 9)


async def test_a_swap_is_lost_to_the_same_seat_of_another_swap() -> None:
    for value in (ANOTHERS, {**seat_map(MINE), "swap": "of somebody else"}):
        with pytest.raises(SwapLost) as caught:
            await client(lost(value)).swap(7, MINE)
        assert caught.value.reading.revision == 8


async def test_a_swap_is_own_by_what_stands_there_though_an_answer_was_lost() -> None:
    made = client(NoAnswer("HTTP 500"), lambda body: lost(own(body))(body))  # type: ignore[operator]
    assert await made.swap(7, MINE) == SeatReading(MINE, 8)
    unclear = client(No("no space", UNKNOWN), lambda body: {**standing(own(body), 8), "header": {}})
    assert await unclear.swap(7, MINE) == SeatReading(MINE, 8)


async def test_a_clear_no_is_one_only_where_nothing_is_under_way() -> None:
    with pytest.raises(ArbiterRefused, match="denied"):
        await client(No("denied", DENIED)).swap(7, MINE)
    with pytest.raises(Unreachable, match="an earlier attempt was not answered"):
        await client(NoAnswer("HTTP 500"), No("denied", DENIED)).swap(7, MINE)
    with pytest.raises(Unreachable, match="an earlier attempt was not answered"):
        await client(NoAnswer("HTTP 500"), ArbiterRefused("a proxy's page")).swap(7, MINE)


async def test_what_a_swap_sends_is_on_condition_of_the_revision() -> None:
    sent: list[Any] = []

    def keep(body: Any) -> Any:
        sent.append(body)
        return {"succeeded": True, "header": {"revision": "9"}}

    await client(keep).swap(7, MINE)
    (compare,) = sent[0]["compare"]
    assert (compare["target"], compare["result"], compare["mod_revision"]) == ("MOD", "EQUAL", "7")
    assert json.loads(base64.b64decode(own(sent[0])))["swap"]
