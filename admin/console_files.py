"""The web console's files: served as they are, to anybody, for they hold nothing of the node.

Here: which files there are and their headers. The console itself is in console/; it asks the same
API as everybody else, with the token its user typed.
"""

from __future__ import annotations

from importlib import resources

from aiohttp import web

TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
#: No inline script or style, nothing from anywhere else, not inside another page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
PREFIX = "/console/"


class ConsoleFiles:
    """`/` is the page, `/console/NAME` what it loads. Read once, from the installed package."""

    def __init__(self) -> None:
        folder = resources.files("tandemq_server.admin") / "console"
        self._files: dict[str, tuple[bytes, str]] = {}
        for entry in folder.iterdir():
            kind = TYPES.get("." + entry.name.rpartition(".")[2])
            if entry.is_file() and kind is not None:
                self._files[entry.name] = (entry.read_bytes(), kind)

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/", self.page), web.get(PREFIX + "{file}", self.file)]

    async def page(self, request: web.Request) -> web.Response:
        return self._answer("index.html")

    async def file(self, request: web.Request) -> web.Response:
        return self._answer(request.match_info["file"])

    def _answer(self, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        body, kind = found
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)
