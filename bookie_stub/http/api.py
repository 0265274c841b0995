"""`/api/v1/bookie/...`: state and garbage collection over HTTP.

The JSON is that of BookKeeper's HTTP server, compared with 4.17.3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import web

from bookie_stub.base.metrics import DirectoryStats
from bookie_stub.compose.bookie import Bookie
from bookie_stub.upkeep.directory_compactions import ForcedRound

PREFIX = "/api/v1/bookie"
"""Of every route."""


class BookieApi:
    """Answers the REST requests; docs/reference/bookie.md lists the routes."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie

    def add_routes(self, app: web.Application) -> None:
        """Adds all routes to an application."""
        for name, answer in (
            ("info", self._info),
            ("state", self._state),
            ("gc_details", self._gc_details),
            ("is_ready", self._is_ready),
            ("gc", self._forced),
            ("entry_location_compact", self._indexes_compacting),
        ):
            app.router.add_get(f"{PREFIX}/{name}", answer)
        app.router.add_put(f"{PREFIX}/gc", self._force)
        app.router.add_put(f"{PREFIX}/entry_location_compact", self._compact_indexes)

    async def _info(self, _request: web.Request) -> web.Response:
        total, free = self._bookie.disk_space()
        return _json({"freeSpace": free, "totalSpace": total})

    async def _state(self, _request: web.Request) -> web.Response:
        running = not self._bookie.closed
        state = {
            "running": running,
            "readOnly": self._bookie.availability.read_only,
            "shuttingDown": not running,
            "availableForHighPriorityWrites": running,
        }
        return _json(state)

    async def _is_ready(self, _request: web.Request) -> web.Response:
        if self._bookie.closed:
            return web.Response(status=503, text="Bookie is not fully started yet")
        return web.Response(text="OK")

    async def _gc_details(self, _request: web.Request) -> web.Response:
        """Answers one object for each ledger directory."""
        forced = self._bookie.upkeep.collector.forced
        return _json([_details(stats, forced) for stats in self._bookie.stats.collection.directories])

    async def _forced(self, _request: web.Request) -> web.Response:
        # BookKeeper answers a text here and not a JSON boolean.
        return _json({"is_in_force_gc": "true" if self._bookie.upkeep.collector.forced else "false"})

    async def _force(self, request: web.Request) -> web.Response:
        """Starts a round of garbage collection.

        Without a body both compactions run where the disk has space for them. With a body, `forceMajor` and
        `forceMinor` (both true by default) choose the compactions, and these run on full disks too."""
        try:
            wanted = await _body(request)
            major, minor = (_flag(wanted, name, default=True) for name in ("forceMajor", "forceMinor"))
        except (ValueError, TypeError) as error:
            return web.Response(
                status=400, text=f'allowed is {{"forceMajor": true, "forceMinor": true}}: {error}'
            )
        self._bookie.upkeep.collector.force(ForcedRound(minor, major, without_free_space=bool(wanted)))
        return _json(f"Triggered GC on BookieServer: {self._bookie.settings.bookie_id}")

    async def _indexes_compacting(self, _request: web.Request) -> web.Response:
        collection = self._bookie.upkeep.collector
        paths = enumerate(collection.index_paths)
        return _json({str(path): collection.is_compacting_index(place) for place, path in paths})

    async def _compact_indexes(self, request: web.Request) -> web.Response:
        """Compacts location indexes when `entryLocationRocksDBCompact` is true.

        `entryLocations` names their paths, separated by commas; without it all are compacted."""
        paths = [str(path) for path in self._bookie.upkeep.collector.index_paths]
        try:
            wanted = await _body(request)
            asked = _flag(wanted, "entryLocationRocksDBCompact", default=False)
            chosen = [path.strip() for path in str(wanted.get("entryLocations", "")).split(",")]
            # An unknown path raises ValueError, and no index is compacted: a spelling mistake must not start a
            # rewrite of all of them.
            places = [paths.index(path) for path in chosen if path] or range(len(paths))
        except (ValueError, TypeError) as error:
            return web.Response(
                status=400,
                text='allowed is {"entryLocationRocksDBCompact": true, "entryLocations": "path,path"} with paths of '
                f"{', '.join(paths)}: {error}",
            )
        if not asked:
            return _json("Not triggered: entryLocationRocksDBCompact is not true")
        self._bookie.upkeep.collector.compact_indexes(places)
        return _json(f"Triggered entry Location RocksDB compact on bookie:{self._bookie.settings.bookie_id}")


def _details(stats: DirectoryStats, forced: bool) -> Mapping[str, object]:
    return {
        "forceCompacting": forced,
        "majorCompacting": stats.compacting == "major",
        "minorCompacting": stats.compacting == "minor",
        "lastMajorCompactionTime": int(stats.last_major_s * 1000),
        "lastMinorCompactionTime": int(stats.last_minor_s * 1000),
        "lastEntryLocationCompactionTime": int(stats.last_index_s * 1000),
        "majorCompactionCounter": stats.majors,
        "minorCompactionCounter": stats.minors,
        "entryLocationCompactionCounter": stats.indexes,
    }


async def _body(request: web.Request) -> Mapping[str, object]:
    text = (await request.text()).strip()
    wanted = json.loads(text) if text else {}
    if not isinstance(wanted, dict):
        raise TypeError(f"{text} is not a JSON object")
    return wanted


def _flag(wanted: Mapping[str, object], name: str, *, default: bool) -> bool:
    value = wanted.get(name, default)
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r} instead of true or false")
    return value


def _json(content: object) -> web.Response:
    return web.Response(text=json.dumps(content, indent=2), content_type="application/json")
