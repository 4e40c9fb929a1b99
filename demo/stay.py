"""`python -m demo cluster`, or `make cluster`: two nodes that stay up until Ctrl-C.

Here: options, addresses, commands to try. Must not be here: the nodes' flags (pair.py).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from rich.console import Console

from demo.node_process import NodeFailed
from demo.pair import Member, cluster

EXIT_CANNOT_RUN, EXIT_INTERRUPTED = 2, 130
PORTS = (3301, 3302, 8081, 8082)
_LOOK_SECONDS = 0.5


def _say(text: str) -> None:
    Console().print(text, highlight=False, markup=False, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo cluster",
        description="Two nodes on loopback that stay up until Ctrl-C.",
    )
    parser.add_argument("--dir", type=Path, metavar="DIR", help="keep data there (else temporary)")
    parser.add_argument("--wal-mode", choices=("write", "fsync"), default="write")
    parser.add_argument("--ack", choices=("local", "pair"), default="local")
    parser.add_argument(
        "--no-witness",
        dest="witness",
        action="store_false",
        help="none beside them: then only an operator promotes a node",
    )
    ports = parser.add_mutually_exclusive_group()
    ports.add_argument("--any-ports", action="store_true", help="free ports instead of 3301 ...")
    ports.add_argument(
        "--ports",
        type=_four,
        default=PORTS,
        metavar="A,B,C,D",
        help="of both nodes, of both admins",
    )
    return parser


def _four(text: str) -> tuple[int, ...]:
    """Four ports. Raises ArgumentTypeError."""
    words = text.split(",")
    if len(words) != len(PORTS) or not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} are not four ports A,B,C,D")
    return tuple(map(int, words))


def run(argv: list[str]) -> int:
    """Run until interrupted (130); 2 when the nodes cannot be started."""
    options = _parser().parse_args(argv)
    try:
        with contextlib.ExitStack() as stack:
            directory = options.dir or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-cluster-"))
            )
            asyncio.run(_until_told(_stay(options, directory)))
    except (NodeFailed, OSError) as error:
        _say(f"error: {error}")
        return EXIT_CANNOT_RUN
    except KeyboardInterrupt:
        _say("stopped")
    return EXIT_INTERRUPTED


async def _until_told(staying: Coroutine[Any, Any, None]) -> None:
    """Until Ctrl-C, or SIGTERM or a closed terminal: all end the nodes in good order."""
    task = asyncio.ensure_future(staying)
    loop = asyncio.get_running_loop()
    told = False

    def end() -> None:
        nonlocal told
        told = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end)
    try:
        await task
    except asyncio.CancelledError:
        if not told:
            raise
        raise KeyboardInterrupt from None


async def _stay(options: argparse.Namespace, directory: Path) -> None:
    if not options.any_ports:
        _need(options.ports)
    ports = (None,) * len(PORTS) if options.any_ports else options.ports
    async with cluster(
        directory,
        wal_mode=options.wal_mode,
        ack=options.ack,
        ttr=300,
        ports=ports,
        witness=options.witness,
    ) as members:
        _tell(members, options.witness)
        was_up = dict.fromkeys((member.name for member in members), True)
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for member in members:
                if was_up[member.name] and not member.running:
                    was_up[member.name] = False
                    _say(f"{member.name} ended; its log is {member.directory}/node.log")
                    _say(f"again: {member.again}")


def _need(ports: tuple[int, ...]) -> None:
    """Raises NodeFailed for a port somebody has: better than two nodes of which one came up."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise NodeFailed(
                    f"port {port}: {error.strerror}; --any-ports takes free ones"
                ) from (error)


def _tell(members: tuple[Member, Member], witness: bool) -> None:
    a, b = members
    for member in members:
        _say(
            f"{member.name}: clients {member.address}, admin http://{member.admin}, "
            f"pid {member.pid}, data {member.data}"
        )
    _say("try, in another terminal:")
    for words in (
        f"status --admin={a.admin}",
        f"status --live --admin={b.admin}",
        f"switchover b --dry-run --admin={a.admin}",
        f"switchover b --admin={a.admin}",
        f"switchover a --admin={b.admin}",
        f"failover status --admin={b.admin}        # after kill -9 {a.pid}: b serves by itself"
        if witness
        else f"role rw --admin={b.admin}        # after kill -9 {a.pid}",
        f"rescue list {a.data}",
    ):
        _say(f"  tandemq {words}")
    _say("Ctrl-C ends both nodes and the witness" if witness else "Ctrl-C ends both nodes")
