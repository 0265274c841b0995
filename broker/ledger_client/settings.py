"""LedgerSettings: how new ledgers are laid out, and how those that exist are read. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.ledger_metadata import DigestType


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    ensemble_size: int = 1
    """`managedLedgerDefaultEnsembleSize`: bookies that a ledger is spread over (E)."""

    write_quorum: int = 1
    """`managedLedgerDefaultWriteQuorum`: bookies that get each entry (Qw)."""

    ack_quorum: int = 1
    """`managedLedgerDefaultAckQuorum`: bookies whose answers confirm an entry (Qa)."""

    digest_type: DigestType = DigestType.CRC32C
    """`managedLedgerDigestType`, of new ledgers."""

    password: bytes = b""
    """`managedLedgerPassword`, of new ledgers."""

    sticky_reads: bool = True
    """`bookkeeperEnableStickyReads`: all reads of a ledger go to one bookie while that answers; needs E = Qw."""

    speculative_read_s: float = 0.0
    """`bookkeeperClientSpeculativeReadTimeoutInMillis` in seconds: after so long without an answer the next bookie
    is asked as well; 0 = never."""

    opportunistic_striping: bool = False
    """`bookkeeper_opportunisticStriping`: a new ledger takes fewer bookies than E, but not fewer than Qw, where there
    are no more."""

    def __post_init__(self) -> None:
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble_size:
            raise ValueError(
                f"1 <= ack quorum {self.ack_quorum} <= write quorum {self.write_quorum}"
                f" <= ensemble size {self.ensemble_size} does not hold"
            )


@dataclass(frozen=True, slots=True)
class QuarantineSettings:
    errors: int = 5
    """`bookkeeperClientHealthCheckErrorThresholdPerInterval`: so many within the interval ..."""

    interval_s: int = 60
    """`bookkeeperClientHealthCheckIntervalSeconds`"""

    quarantine_s: int = 1800
    """... put a bookie into quarantine for `bookkeeperClientHealthCheckQuarantineTimeInSeconds`; 0 = never."""
