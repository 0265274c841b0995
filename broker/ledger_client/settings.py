"""LedgerSettings and QuarantineSettings: the keys of broker.conf about ledgers on bookies."""

from __future__ import annotations

from typing import NamedTuple

from broker.config.fields import broker_key
from protocol.ledger_metadata import DigestType
from settings.fields import RoomSettings
from settings.settings import Settings


def _digest_type(settings: Settings) -> DigestType:
    # Pulsar calls this digest MAC, BookKeeper's metadata HMAC.
    name = settings.str("managedLedgerDigestType")
    return DigestType.HMAC if name == "MAC" else DigestType[name]


def _password(settings: Settings) -> bytes:
    return settings.str("managedLedgerPassword").encode()


class Copies(NamedTuple):
    """The numbers of bookies of a ledger; ensemble >= write quorum >= ack quorum >= 1."""

    ensemble_size: int
    """Bookies that the ledger is spread over (E)."""
    write_quorum: int
    """Bookies that get each entry (Qw)."""
    ack_quorum: int
    """Bookies whose answers confirm an entry (Qa)."""


class LedgerSettings(RoomSettings):
    """Layout of new ledgers, and the way in which ledgers are read."""

    ensemble_size: int = broker_key.int("managedLedgerDefaultEnsembleSize")
    """Bookies that a ledger is spread over (E)."""
    write_quorum: int = broker_key.int("managedLedgerDefaultWriteQuorum")
    """Bookies that get each entry (Qw)."""
    ack_quorum: int = broker_key.int("managedLedgerDefaultAckQuorum")
    """Bookies whose answers confirm an entry (Qa)."""
    digest_type: DigestType = broker_key.rule(_digest_type)
    """Digest at the end of every entry of a new ledger."""
    password: bytes = broker_key.rule(_password)
    """Password of new ledgers."""
    sticky_reads: bool = broker_key.bool("bookkeeperEnableStickyReads")
    """Send all reads of a ledger to one bookie while it answers; needs E = Qw."""
    speculative_read_s: float = broker_key.float("bookkeeperClientSpeculativeReadTimeoutInMillis", "s")
    """Time without an answer after which the next bookie is asked as well; 0 = never."""
    opportunistic_striping: bool = broker_key.bool("bookkeeper_opportunisticStriping")
    """Let a new ledger take fewer bookies than E, but at least Qw, while no more are available."""

    def __post_init__(self) -> None:
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble_size:
            raise ValueError(
                f"1 <= ack quorum {self.ack_quorum} <= write quorum {self.write_quorum}"
                f" <= ensemble size {self.ensemble_size} does not hold"
            )


def _quarantine_s(settings: Settings) -> int:
    if not settings.bool("bookkeeperClientHealthCheckEnabled"):
        return 0
    return settings.int("bookkeeperClientHealthCheckQuarantineTimeInSeconds")


class QuarantineSettings(RoomSettings):
    """Condition and duration of a bookie's quarantine."""

    errors: int = broker_key.int("bookkeeperClientHealthCheckErrorThresholdPerInterval")
    """Failed adds within the interval that put a bookie into quarantine."""
    interval_s: int = broker_key.int("bookkeeperClientHealthCheckIntervalSeconds")
    """Seconds within which failed adds are counted."""
    quarantine_s: int = broker_key.rule(_quarantine_s)
    """Seconds of the quarantine; 0 = no quarantine."""
