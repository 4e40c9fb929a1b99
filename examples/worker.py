"""Survives the death of its master: `python examples/worker.py HOST:PORT,HOST:PORT`."""

import asyncio
import sys

import tandemq


async def main() -> None:
    async with tandemq.connect(sys.argv[1], on_switch=print, timeout=60) as client:
        async for task in client.tube("jobs").consume():
            async with task:
                print(task.data, flush=True)


asyncio.run(main())
