"""The life of a witness: its directory, its listener, its end on SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

import uvloop

from tandemq.model.errors import StorageError
from tandemq_server.node.loop.log_lines import Logger
from tandemq_server.storage.files import FileDisk
from tandemq_server.witness.register import Registers
from tandemq_server.witness.server import Listening, WitnessServer

EXIT_OK, EXIT_REFUSED, EXIT_DISK = 0, 1, 5


def serve(data_dir: Path, listening: Listening, clusters_max: int, logger: Logger) -> int:
    """Run until SIGTERM or SIGINT. Prints one line `ready HOST:PORT` once it listens.

    Returns 0 after an orderly end, 1 when something refuses to start, 5 when the disk failed.
    """
    try:
        disk = FileDisk(data_dir)
        try:
            registers = Registers(disk, lambda: time.time_ns() // 1000, clusters_max)
            for line in registers.reports:
                logger.info(f"{data_dir}: {line}")
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(_run(registers, listening, logger))
        finally:
            disk.release()
    except (StorageError, OSError) as error:
        logger.error(str(error) or type(error).__name__)
        return EXIT_REFUSED


async def _run(registers: Registers, listening: Listening, logger: Logger) -> int:
    ended = asyncio.Event()
    code = EXIT_OK

    def failed() -> None:
        nonlocal code
        if code == EXIT_OK:
            code = EXIT_DISK
            logger.error(f"the disk failed, the witness ends: {registers.failure}")
        ended.set()

    def report(text: str, error: BaseException | None) -> None:
        if error is None:
            logger.info(text)
        else:
            logger.exception(text, error)

    server = WitnessServer(registers, listening, report, failed)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    host, port = await server.start()
    sys.stdout.write(f"ready {host}:{port}\n")
    sys.stdout.flush()
    logger.info(f"listening on {host}:{port}")
    await ended.wait()
    await server.stop()
    logger.info("ended")
    return code
