"""A shop's background work: orders in the customer's order, mails, retries, dead letters.

The web process calls `accept`; workers run `python shop.py HOST:PORT,HOST:PORT`. Two tubes: orders
of one customer are worked off one after another, mails go out as they come. An order that was paid
and the mail about it become true together; what fails is tried again, and set aside in the end.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import TypedDict

import tandemq

log = logging.getLogger("shop")
MAIL_ATTEMPTS, ORDER_ATTEMPTS = 5, 3


class Order(TypedDict):
    """What a customer sent."""

    number: str
    customer: str
    cents: int


class Declined(Exception):
    """The bank says no: trying again does not help."""


Pay = Callable[[Order], Awaitable[None]]
Send = Callable[[str, str], Awaitable[None]]


async def set_up(client: tandemq.Client) -> None:
    """Make the tubes; with other options than theirs it fails and says which differ."""
    for name in ("orders-dead", "mails-dead"):
        await client.create_tube(name, "fifo")
    retries = {"retry_delay": 0.1, "retry_factor": 3, "ttr": 60}
    await client.create_tube(
        "orders", "utubettl", max_attempts=ORDER_ATTEMPTS, dead_letter="orders-dead", **retries
    )
    await client.create_tube(
        "mails", "fifottl", max_attempts=MAIL_ATTEMPTS, dead_letter="mails-dead", **retries
    )


async def accept(client: tandemq.Client, order: Order) -> int:
    """The web process: the order is safe once this returns, and sent twice it counts once."""
    tube = client.tube("orders")
    return await tube.put(order, key=order["number"], utube=order["customer"])


async def work_on_order(task: tandemq.Task, pay: Pay) -> None:
    """Pay, then be done and have a mail sent, in one transaction.

    `pay` may be called again after a crash: it hands the order's number to the bank, which counts
    a number once.
    """
    order: Order = task.data
    try:
        await pay(order)
    except Declined as error:
        await task.bury(f"declined: {error}")
        return
    text = f"Order {order['number']} is on its way"
    await task.finish([("mails", {"to": order["customer"], "text": text})])


async def work_on_mail(task: tandemq.Task, send: Send) -> None:
    """An exception gives the task back to its tube, which knows when to try again."""
    await send(task.data["to"], task.data["text"])


async def run(tube: tandemq.Tube, handle: Callable[[tandemq.Task], Awaitable[None]]) -> None:
    """One lane of a worker, for ever."""
    async for task in tube.consume():
        try:
            async with task:
                await handle(task)
        except tandemq.LeaseLost as error:
            log.warning("another worker has it now: %s", error)
        except Exception:
            log.exception("%r, %s", task, task.next_try)


async def work(client: tandemq.Client, pay: Pay, send: Send, lanes: int = 4) -> None:
    """A worker: so many lanes for each tube, until it is cancelled."""
    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(run(client.tube("orders"), lambda task: work_on_order(task, pay)))
            group.create_task(run(client.tube("mails"), lambda task: work_on_mail(task, send)))


async def main(servers: str) -> None:
    async def say(*what: object) -> None:
        log.info("%s", what)

    async with tandemq.connect(servers) as client:
        await set_up(client)
        await work(client, say, say)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(sys.argv[1]))
