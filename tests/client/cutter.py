"""A proxy on loopback that breaks what passes through it: requests, answers, or silence."""

from __future__ import annotations

import asyncio
import contextlib


class Cutter:
    """Between a client and one node. Each order is for the next request that has `sign` in it.

    cut(sign, sent): the answer is cut off after `sent` bytes, and with it the connection.
    lose(sign): the request does not arrive, and the connection is cut.
    freeze(): nothing more is answered on the connections there are (and on new ones too), until
    `thaw()`.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        self.cuts = 0
        #: How often somebody connected and asked something.
        self.asked = 0
        self._cut: tuple[bytes, int] | None = None
        self._lose: bytes | None = None
        self._warm = asyncio.Event()
        self._warm.set()
        self._frozen = False
        self._serving: set[asyncio.Task[None]] = set()

    def cut(self, sign: bytes, sent: int = 0) -> None:
        self._cut = (sign, sent)

    def lose(self, sign: bytes) -> None:
        self._lose = sign

    def freeze(self, new: bool = False) -> None:
        self._warm = asyncio.Event()
        self._frozen = new
        for task in self._serving:
            task.cold = self._warm  # type: ignore[attr-defined]

    def thaw(self) -> None:
        self._warm.set()

    async def __aenter__(self) -> Cutter:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port: int = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.thaw()
        self.server.close()
        await asyncio.gather(*self._serving)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._serving.add(me)
        if self._frozen:
            me.cold = self._warm  # type: ignore[attr-defined]
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        left: int | None = None
        first = True

        async def forth() -> None:
            nonlocal left, first
            while data := await reader.read(65536):
                self.asked += first
                first = False
                if self._lose is not None and self._lose in data:
                    self._lose = None
                    self.cuts += 1
                    return
                if self._cut is not None and self._cut[0] in data:
                    left, self._cut = self._cut[1], None
                back.write(data)

        async def answer() -> None:
            while data := await there.read(65536):
                if (cold := getattr(me, "cold", None)) is not None:
                    await cold.wait()
                if left is not None:
                    self.cuts += 1
                    writer.write(data[:left])
                    await writer.drain()
                    return
                writer.write(data)

        ways = [asyncio.create_task(forth()), asyncio.create_task(answer())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, back):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()
