"""EnsembleSettings and QuarantineRules: the values by which ledgers are laid out on bookies and read from them."""

from __future__ import annotations

from typing import NamedTuple

from foundation.value import Value
from protocol.ledger_metadata import DigestType


class Copies(NamedTuple):
    """The numbers of bookies of a ledger; ensemble >= write quorum >= ack quorum >= 1."""

    ensemble_size: int
    """Bookies that the ledger is spread over (E)."""
    write_quorum: int
    """Bookies that get each entry (Qw)."""
    ack_quorum: int
    """Bookies whose answers confirm an entry (Qa)."""


class EnsembleSettings(Value):
    """Layout of new ledgers, and the way in which ledgers are read."""

    ensemble_size: int
    """Bookies that a ledger is spread over (E)."""
    write_quorum: int
    """Bookies that get each entry (Qw)."""
    ack_quorum: int
    """Bookies whose answers confirm an entry (Qa)."""
    digest_type: DigestType
    """Digest at the end of every entry of a new ledger."""
    password: bytes
    """Password of new ledgers."""
    sticky_reads: bool
    """Send all reads of a ledger to one bookie while it answers; needs E = Qw."""
    speculative_read_s: float
    """Time without an answer after which the next bookie is asked as well; 0 = never."""
    opportunistic_striping: bool
    """Let a new ledger take fewer bookies than E, but at least Qw, while no more are available."""

    def __post_init__(self) -> None:
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble_size:
            raise ValueError(
                f"1 <= ack quorum {self.ack_quorum} <= write quorum {self.write_quorum}"
                f" <= ensemble size {self.ensemble_size} does not hold"
            )


class QuarantineRules(Value):
    """Condition and duration of a bookie's quarantine."""

    errors: int
    """Failed adds within the interval that put a bookie into quarantine."""
    interval_s: int
    """Seconds within which failed adds are counted."""
    quarantine_s: int
    """Seconds of the quarantine; 0 = no quarantine."""
