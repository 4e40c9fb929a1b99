"""Survives the death of its master: `python examples/worker.py HOST:PORT,HOST:PORT`."""

import asyncio
import contextlib
import sys

import tandemq


async def main() -> None:
    async with tandemq.connect(sys.argv[1], on_switch=print) as client:
        async for task in client.tube("jobs").consume():
            with contextlib.suppress(tandemq.LeaseLost):  # another worker has it now
                async with task:
                    print(task.data, flush=True)


asyncio.run(main())
