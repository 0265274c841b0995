"""Loading the bookie's keys, and what stands in for those that nobody set.

Each rule is a function of the settings and answers with the value and what it was computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from pathlib import Path

from bookie_stub.config.keys import BOOKIE_KEYS
from settings.load import load_settings
from settings.memory import DirectMemory, direct_memory
from settings.settings import Computed, Settings

Rule = Callable[[Settings], Computed]


def load_bookie_settings(
    path: str | Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Sequence[str] = (),
    standalone: bool = False,
    neighbours: Container[str] = (),
) -> Settings:
    """The bookie's settings from a file (None: the defaults), environment and `key=value` overrides.

    `standalone` takes the defaults of the embedded bookie; `neighbours` has the keys of the same file that
    the broker reads. Raises SettingsError, whose text is one line.
    """
    return load_settings(
        BOOKIE_KEYS,
        path,
        environ=environ,
        overrides=overrides,
        standalone=standalone,
        neighbours=neighbours,
        rules=bookie_rules(environ),
    )


def bookie_rules(environ: Mapping[str, str]) -> dict[str, Rule]:
    @cache
    def memory() -> DirectMemory:
        return direct_memory(environ)

    def quarter(settings: Settings) -> Computed:
        size = max(memory().mebibytes // 4, 1)
        return Computed(size, f"25 % of {memory().mebibytes} MiB ({memory().source})")

    return {
        "journalDirectory": lambda settings: Computed(_below(settings, "journal"), "magnetarDataDirectory"),
        "journalDirectories": lambda settings: Computed(
            (settings.str("journalDirectory"),), "journalDirectory"
        ),
        "ledgerDirectories": lambda settings: Computed(
            (_below(settings, "ledgers"),), "magnetarDataDirectory"
        ),
        "indexDirectories": lambda settings: Computed(
            settings.list("ledgerDirectories"), "ledgerDirectories"
        ),
        "dbStorage_writeCacheMaxSizeMb": quarter,
        "dbStorage_readAheadCacheMaxSizeMb": quarter,
        "diskUsageLwmThreshold": lambda settings: Computed(
            settings.float("diskUsageThreshold"), "diskUsageThreshold"
        ),
        "metadataServiceUri": _metadata_service_uri,
        "advertisedAddress": lambda settings: Computed(_host_name(), "host name"),
        "bookieId": lambda settings: Computed(
            f"{settings.str('advertisedAddress')}:{settings.int('bookiePort')}",
            "advertisedAddress:bookiePort",
        ),
    }


def _metadata_service_uri(settings: Settings) -> Computed:
    servers, root = settings.str("zkServers"), settings.str("zkLedgersRootPath")
    return Computed(f"zk+null://{servers}{root}" if servers else "", "zkServers and zkLedgersRootPath")


def _below(settings: Settings, name: str) -> str:
    return f"{settings.str('magnetarDataDirectory')}/bookie/{name}"


def _host_name() -> str:
    import socket  # only a bookie without advertisedAddress pays for it

    return socket.getfqdn()
