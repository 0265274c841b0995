"""The files of the page: read once, compressed once, answered with headers that admit no foreign content.

The files hold no data, so they need no login: a page must be there before anybody can give it a token. Every request is a
look into a dictionary of the files that exist, so no path can lead out of the folder.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from broker.admin.http.answers import html_page

PAGES: Final = Path(__file__).parent / "pages"
"""The folder of the page, part of the package."""
START: Final = "index.html"
"""The file that answers at `/`."""
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
"""Content types by suffix. A file with another suffix is not served."""
HEADERS: Final = {
    # No script, style or picture but ours, none written into the page itself, and no frame of another site around it.
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A browser asks again each time and gets 304, so a new broker is never shown by an old page.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
"""Headers of every file."""

SERVED: Final = (
    "Magnetar: console {origin}/ (in a browser), admin API {origin}/admin/v2 (described by {origin}/openapi.json),"
    " metrics {origin}/metrics, documentation in the folder docs of its repository\n"
)
"""The answer at `/` to clients that are no browsers."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file, ready to be sent."""

    body: bytes
    """The bytes of the file."""
    compressed: bytes | None
    """The same by gzip; None where that saves nothing."""
    content_type: str
    """Value of the header."""
    etag: str
    """Names the content, in quotes."""


class StaticFiles:
    """Serves one folder."""

    def __init__(self, folder: Path = PAGES) -> None:
        """Reads nothing before the first request."""
        self._folder = folder
        self._files: dict[str, StaticFile] | None = None
        self._reading: asyncio.Lock = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes of the page."""
        return [web.get("/", self.start), web.get("/console/{file:.+}", self.file)]

    async def start(self, request: web.Request) -> web.StreamResponse:
        """Returns the console's page to a browser, and to every other client a line that names all that is served."""
        # Browsers name HTML when they open a page; curl asks for anything and is read by people.
        if "text/html" not in request.headers.get("Accept", ""):
            return web.Response(text=SERVED.format(origin=request.url.origin()), headers=HEADERS)
        return await self._answer(request, START)

    async def file(self, request: web.Request) -> web.StreamResponse:
        """Returns one file of the console's page."""
        return await self._answer(request, request.match_info["file"])

    async def _answer(self, request: web.Request, name: str) -> web.StreamResponse:
        found = (await self._loaded()).get(name)
        if found is None:
            return html_page(404, "Not Found", HEADERS)
        headers = {**HEADERS, "ETag": found.etag, "Content-Type": found.content_type}
        asked = [
            one.strip().removeprefix("W/") for one in request.headers.get("If-None-Match", "").split(",")
        ]
        if found.etag in asked or "*" in asked:
            del headers["Content-Type"]
            return web.Response(status=304, headers=headers)
        if found.compressed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=found.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=found.body, headers=headers)

    async def _loaded(self) -> dict[str, StaticFile]:
        async with self._reading:
            if self._files is None:
                # In a thread: reading and compressing take some ten milliseconds.
                self._files = await asyncio.to_thread(read_folder, self._folder)
        return self._files


def read_folder(folder: Path) -> dict[str, StaticFile]:
    """Returns all files of a folder and of those in it, by their path with slashes."""
    return {
        path.relative_to(folder).as_posix(): _prepared(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in TYPES and path.is_file()
    }


def _prepared(path: Path) -> StaticFile:
    body = path.read_bytes()
    # Without the time of day in it, so that equal files have equal bytes.
    compressed = gzip.compress(body, 9, mtime=0)
    return StaticFile(
        body,
        compressed if len(compressed) < len(body) else None,
        TYPES[path.suffix],
        f'"{hashlib.sha256(body).hexdigest()[:32]}"',
    )
