"""The bookies of the broker: disks, journal and read cache of an embedded one, the connection of all others.

The broker knows nothing of the inside of a bookie on the network, so those numbers are None there and the answer says why.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from broker.ledger_client.bookies import Bookies
from broker.ledger_client.embedded import BookieReport, EmbeddedLedgerClient
from broker.service.namespaces import Json

REMOTE: Final = "The bookie is another process: ask its own metrics at its HTTP port"
"""Why numbers of a bookie on the network are missing."""
MEMORY: Final = "Entries are kept in memory, or the bookie is wrapped by --test-faults"
"""Why numbers of the only client that is no connection are missing."""


def journal_latency(bookies: Bookies) -> tuple[float | None, float | None]:
    """Returns median and 99th percentile of the embedded bookie's journal writes in ms; None without one."""
    sole = bookies.sole
    if not isinstance(sole, EmbeddedLedgerClient):
        return None, None
    median, tail = sole.journal_ms(0.5, 0.99)
    return (None, None) if math.isnan(median) else (median, tail)


async def bookies_answer(bookies: Bookies) -> dict[str, Json]:
    """Returns the answer: one object for each bookie that gets new entries."""
    reachable = bookies.reachable_clients()
    shown: list[Json] = []
    for name in bookies.names:
        client = bookies.client(name)
        if isinstance(client, EmbeddedLedgerClient):
            # In a thread, because the file system of a disk that is ill may take its time.
            report = await asyncio.to_thread(client.report)
            shown.append(_embedded(name, report, journal_latency(bookies)))
            continue
        connected = getattr(client, "reachable", None)
        shown.append(
            {
                "id": name,
                "kind": "memory" if connected is None else "tcp",
                "connected": client in reachable if connected is None else bool(connected),
                "state": "unknown",
                "disks": None,
                "journal": None,
                "readCache": None,
                "unknown": MEMORY if connected is None else REMOTE,
            }
        )
    return {"bookies": shown}


def _embedded(name: str, report: BookieReport, journal: tuple[float | None, float | None]) -> Json:
    cache = report.read_cache
    return {
        "id": name,
        "kind": "embedded",
        "connected": True,
        "state": "readonly" if report.read_only else "writable",
        "disks": [
            {
                "path": one.path,
                "usedBytes": one.used_bytes,
                "freeBytes": one.free_bytes,
                "writable": one.writable,
            }
            for one in report.directories
        ],
        "journal": {"p50Ms": journal[0], "p99Ms": journal[1]},
        "readCache": {
            "hits": cache.hits,
            "misses": cache.misses,
            "evictedBeforeUse": cache.evicted_unserved,
        },
        "unknown": None,
    }
