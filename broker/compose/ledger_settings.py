"""LedgerSettings and QuarantineSettings: the keys of broker.conf about ledgers on bookies."""

from __future__ import annotations

from bookkeeper.ensembles.settings import EnsembleSettings, QuarantineRules
from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings
from foundation.settings.settings import Settings
from protocol.ledger_metadata import DigestType


def _digest_type(settings: Settings) -> DigestType:
    # Pulsar calls this digest MAC, BookKeeper's metadata HMAC.
    name = settings.str("managedLedgerDigestType")
    return DigestType.HMAC if name == "MAC" else DigestType[name]


def _password(settings: Settings) -> bytes:
    return settings.str("managedLedgerPassword").encode()


class LedgerSettings(RoomSettings, EnsembleSettings):
    """`EnsembleSettings` from the keys of broker.conf."""

    ensemble_size: int = broker_key.int("managedLedgerDefaultEnsembleSize")
    write_quorum: int = broker_key.int("managedLedgerDefaultWriteQuorum")
    ack_quorum: int = broker_key.int("managedLedgerDefaultAckQuorum")
    digest_type: DigestType = broker_key.rule(_digest_type)
    password: bytes = broker_key.rule(_password)
    sticky_reads: bool = broker_key.bool("bookkeeperEnableStickyReads")
    speculative_read_s: float = broker_key.float("bookkeeperClientSpeculativeReadTimeoutInMillis", "s")
    opportunistic_striping: bool = broker_key.bool("bookkeeper_opportunisticStriping")

    def __post_init__(self) -> None:
        EnsembleSettings.__post_init__(self)


def _quarantine_s(settings: Settings) -> int:
    if not settings.bool("bookkeeperClientHealthCheckEnabled"):
        return 0
    return settings.int("bookkeeperClientHealthCheckQuarantineTimeInSeconds")


class QuarantineSettings(RoomSettings, QuarantineRules):
    """`QuarantineRules` from the keys of broker.conf."""

    errors: int = broker_key.int("bookkeeperClientHealthCheckErrorThresholdPerInterval")
    interval_s: int = broker_key.int("bookkeeperClientHealthCheckIntervalSeconds")
    quarantine_s: int = broker_key.rule(_quarantine_s)
