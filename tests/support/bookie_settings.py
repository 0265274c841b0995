"""Settings of a small bookie."""

from __future__ import annotations

from pathlib import Path

from bookie_stub.config.fields import default_settings
from bookie_stub.config.settings import BookieSettings
from foundation.units import MIB


def for_directory(data: Path, **changes: object) -> BookieSettings:
    """Makes settings of a bookie with all directories below `data`.

    Its caches are small, because the defaults are quarters of the machine's memory. An add may wait long for space in them:
    on a machine that stands still a flush takes longer than the default allows.
    """
    small: dict[str, object] = {
        "journal_directories": (data / "journal",),
        "ledger_directories": (data / "ledgers",),
        "index_directories": (data / "ledgers",),
        "host": "127.0.0.1",
        "advertised_address": "127.0.0.1",
        "bookie_id": "127.0.0.1:3181",
        "write_cache_bytes": 64 * MIB,
        "read_cache_bytes": 64 * MIB,
        "read_threads": 4,
        "throttle_s_max": 300.0,
    }
    return BookieSettings.of(default_settings(), **{**small, **changes})
