"""`/api/v1/bookie/...`: the bookie's state and its garbage collection, in the JSON of BookKeeper's HTTP server."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import web

from bookie_stub.bookie import Bookie
from bookie_stub.collection import Force

PREFIX = "/api/v1/bookie"


class BookieApi:
    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie

    def add_routes(self, app: web.Application) -> None:
        for name, answer in (
            ("info", self._info),
            ("state", self._state),
            ("gc_details", self._gc_details),
            ("is_ready", self._is_ready),
            ("gc", self._forced),
        ):
            app.router.add_get(f"{PREFIX}/{name}", answer)
        app.router.add_put(f"{PREFIX}/gc", self._force)

    async def _info(self, _request: web.Request) -> web.Response:
        total, free = self._bookie.disk_space()
        return _json({"freeSpace": free, "totalSpace": total})

    async def _state(self, _request: web.Request) -> web.Response:
        running = not self._bookie.closed
        state = {
            "running": running,
            "readOnly": self._bookie.read_only,
            "shuttingDown": not running,
            "availableForHighPriorityWrites": running,
        }
        return _json(state)

    async def _is_ready(self, _request: web.Request) -> web.Response:
        if self._bookie.closed:
            return web.Response(status=503, text="Bookie is not fully started yet")
        return web.Response(text="OK")

    async def _gc_details(self, _request: web.Request) -> web.Response:
        """One object for each ledger directory, as BookKeeper; ours are collected together, so all are alike."""
        stats = self._bookie.stats.collection
        details: Mapping[str, object] = {
            "forceCompacting": self._bookie.collection.forced,
            "majorCompacting": stats.compacting == "major",
            "minorCompacting": stats.compacting == "minor",
            "lastMajorCompactionTime": int(stats.last_major_s * 1000),
            "lastMinorCompactionTime": int(stats.last_minor_s * 1000),
            "majorCompactionCounter": stats.majors,
            "minorCompactionCounter": stats.minors,
        }
        return _json([details] * len(self._bookie.settings.ledger_directories))

    async def _forced(self, _request: web.Request) -> web.Response:
        return _json({"is_in_force_gc": "true" if self._bookie.collection.forced else "false"})

    async def _force(self, request: web.Request) -> web.Response:
        """Without a body both kinds of compaction; `forceMajor` and `forceMinor` switch one off."""
        text = (await request.text()).strip()
        try:
            wanted = json.loads(text) if text else {}
            major, minor = (_flag(wanted, name) for name in ("forceMajor", "forceMinor"))
        except (ValueError, TypeError) as error:
            return web.Response(
                status=400, text=f'allowed is {{"forceMajor": true, "forceMinor": true}}: {error}'
            )
        self._bookie.collection.force(Force(minor=minor, major=major))
        return _json(f"Triggered GC on BookieServer: {self._bookie.settings.bookie_id}")


def _flag(wanted: Mapping[str, object], name: str) -> bool:
    value = wanted.get(name, True) if isinstance(wanted, dict) else None
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}")
    return value


def _json(content: object) -> web.Response:
    return web.Response(text=json.dumps(content, indent=2), content_type="application/json")
