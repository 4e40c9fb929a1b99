"""What happened to a task, read from the log by a process of its own: the loop goes on serving.

Must not be here: reading the log (storage.past), HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from tandemq_server.node.observe.answers import OperationRefused, RetryLater
from tandemq_server.node.observe.past_answers import PastAnswer, PastStep, PastWanted

#: How long the log is read for one request, in seconds, and how nice that process is.
READ_SECONDS, NICE = 30.0, 10
_NOTHING = 4
_PROGRAM = "import sys; from tandemq_server.cli import main; sys.exit(main())"


async def past_of(directory: Path, tube: str, wanted: PastWanted) -> PastAnswer:
    """Raises Refused with the reader's own words, Unavailable when it takes too long."""
    words = ["history", "--json"]
    words += [f"--find={wanted.find}"] if wanted.find else []
    words += [f"--field={wanted.field}"] if wanted.field else []
    words += ["--", str(directory), tube]
    words += [str(wanted.task)] if wanted.task is not None else []
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PROGRAM,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=lambda: os.nice(NICE) and None,
    )
    try:
        async with asyncio.timeout(READ_SECONDS):
            out, err = await process.communicate()
    except BaseException as error:
        process.kill()
        await process.wait()
        if isinstance(error, TimeoutError):
            text = f"the log was not read within {READ_SECONDS:g} s: see `tandemq history`"
            raise RetryLater(text) from None
        raise
    if process.returncode not in (0, _NOTHING):
        raise OperationRefused(
            " ".join(err.decode("utf-8", "replace").split()) or "the log was not read"
        )
    return PastAnswer(
        tube, wanted.task, tuple(PastStep(**json.loads(line)) for line in out.splitlines())
    )
