"""The shop against a real node, the fixture `tandem`: order, retries, dead letters, no repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import shop

import tandemq
from tandemq.testing import TandemNode

Work = Callable[[tandemq.Client], Awaitable[None]]


def shopping(tandem: TandemNode, pay: shop.Pay, send: shop.Send, story: Work) -> None:
    """Run a story beside a worker that ends with it."""

    async def whole() -> None:
        async with tandem.connect() as client:
            await shop.set_up(client)
            worker = asyncio.create_task(shop.work(client, pay, send))
            async with asyncio.timeout(30):
                await story(client)
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

    asyncio.run(whole())


def test_each_customer_is_served_in_order_and_nobody_twice(tandem: TandemNode) -> None:
    paid: list[str] = []
    mails: asyncio.Queue[str] = asyncio.Queue()

    async def pay(order: shop.Order) -> None:
        await asyncio.sleep(0.02)
        paid.append(order["number"])

    async def send(to: str, text: str) -> None:
        mails.put_nowait(f"{to}: {text}")

    async def story(client: tandemq.Client) -> None:
        for number in range(4):
            for customer in ("ann", "bob"):
                order: shop.Order = {
                    "number": f"{customer}-{number}",
                    "customer": customer,
                    "cents": 5,
                }
                assert await shop.accept(client, order) == await shop.accept(client, order)
        sent = [await mails.get() for _ in range(8)]
        assert "ann: Order ann-0 is on its way" in sent

    shopping(tandem, pay, send, story)
    assert len(paid) == 8
    for customer in ("ann", "bob"):
        assert [one for one in paid if one.startswith(customer)] == [
            f"{customer}-{n}" for n in range(4)
        ]


def test_what_fails_is_tried_again_and_set_aside_with_its_reason(tandem: TandemNode) -> None:
    tried: list[str] = []

    async def pay(order: shop.Order) -> None:
        tried.append(order["number"])
        if order["number"] == "declined":
            raise shop.Declined("no money")
        raise ConnectionError("the bank is closed")

    async def send(to: str, text: str) -> None:
        raise AssertionError("nothing was paid")

    async def story(client: tandemq.Client) -> None:
        for number in ("declined", "down"):
            await shop.accept(client, {"number": number, "customer": number, "cents": 5})
        dead = await client.tube("orders-dead").take(3)
        assert dead is not None
        assert dead.data["number"] == "down"
        assert dead.reason == "ConnectionError: the bank is closed"
        await dead.ack()
        assert (await client.statistics("orders"))["tasks"]["buried"] == 1

    shopping(tandem, pay, send, story)
    assert tried.count("down") == shop.ORDER_ATTEMPTS
    assert tried.count("declined") == 1
