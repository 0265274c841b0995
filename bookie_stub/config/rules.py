"""`load_bookie_settings`, and the computed values of the bookie's keys that are unset."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Final

from bookie_stub.config.keys import BOOKIE_KEYS
from foundation.settings.addresses import advertised_host, check_addresses
from foundation.settings.computed import Rule, host_name, share_of_memory, value_of
from foundation.settings.load import Override, load_settings
from foundation.settings.settings import Computed, Settings


def load_bookie_settings(
    path: str | Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Sequence[Override] = (),
    standalone: bool = False,
    neighbours: Container[str] = (),
) -> Settings:
    """Returns the bookie's settings from a file, the environment and the command line.

    `path` None means the defaults. `standalone` takes the defaults of the embedded bookie; `neighbours` has the keys
    of the same file that the broker reads. Raises SettingsError, whose text is one line.
    """
    settings = load_settings(
        BOOKIE_KEYS,
        path,
        environ=environ,
        overrides=overrides,
        standalone=standalone,
        neighbours=neighbours,
        rules=BOOKIE_RULES,
    )
    if not standalone:  # An embedded bookie has no port.
        settings.notes += tuple(check_addresses(settings, "bookiePort and prometheusStatsHttpPort"))
    return settings


def _journal_directory(settings: Settings) -> Computed:
    return Computed(f"{settings.str('magnetarDataDirectory')}/bookie/journal", "magnetarDataDirectory")


def _journal_directories(settings: Settings) -> Computed:
    return Computed((settings.str("journalDirectory"),), "journalDirectory")


def _ledger_directories(settings: Settings) -> Computed:
    return Computed((f"{settings.str('magnetarDataDirectory')}/bookie/ledgers",), "magnetarDataDirectory")


def _metadata_service_uri(settings: Settings) -> Computed:
    servers, root = settings.str("zkServers"), settings.str("zkLedgersRootPath")
    return Computed(f"zk+null://{servers}{root}" if servers else "", "zkServers and zkLedgersRootPath")


def _bookie_id(settings: Settings) -> Computed:
    if settings.is_set("advertisedAddress"):
        host, source = settings.str("advertisedAddress"), "advertisedAddress"
    else:
        # The computed address follows bindAddress. An identity must not: directories remember it.
        host, source = str(host_name(settings).value), "host name"
    return Computed(f"{host}:{settings.int('bookiePort')}", f"{source}:bookiePort")


_A_QUARTER: Final = share_of_memory(25)

BOOKIE_RULES: Final[dict[str, Rule]] = {
    "advertisedAddress": advertised_host,
    "bookieId": _bookie_id,
    "metadataServiceUri": _metadata_service_uri,
    "journalDirectory": _journal_directory,
    "journalDirectories": _journal_directories,
    "ledgerDirectories": _ledger_directories,
    "indexDirectories": value_of("ledgerDirectories"),
    "dbStorage_writeCacheMaxSizeMb": _A_QUARTER,
    "dbStorage_readAheadCacheMaxSizeMb": _A_QUARTER,
    "diskUsageLwmThreshold": value_of("diskUsageThreshold"),
}
"""By key: the function for the value that its row describes as `computed`."""
