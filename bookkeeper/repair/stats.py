"""Counters of re-replication, under BookKeeper's names in their exposition."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class AuditorStats:
    """Counts of an auditor since its process began."""

    elected: bool = False
    """True while this process is the auditor."""
    marked_now: int = 0
    """Ledgers that have a mark, as last counted."""
    marked: int = 0
    """Ledgers that this auditor has marked."""
    marked_at_audits: int = 0
    """Those of them that a search for the ledgers of lost bookies found."""
    audits: int = 0
    """Searches for the ledgers of lost bookies."""
    delayed: int = 0
    """Searches that waited for a lost bookie to come back."""
    cancelled: int = 0
    """Waits that ended because the bookie came back."""
    checked: int = 0
    """Ledgers whose copies were asked for."""
    elections: int = 0
    """Times that this process looked for the auditor's place and another one had it."""


@dataclass(slots=True)
class WorkerStats:
    """Counts of a replication worker since its process began."""

    replicated: int = 0
    """Ledgers of which a fragment was copied."""
    finished: int = 0
    """Ledgers whose mark was removed because nothing is missing."""
    failed: int = 0
    """Attempts at a ledger that ended with an error."""
    deferred: int = 0
    """Attempts that left a ledger for later, because copies were still missing."""
    recovered: int = 0
    """Open ledgers that were fenced and closed because a bookie of theirs was lost."""
    entries_read: int = 0
    """Entries read from bookies that have them."""
    bytes_read: int = 0
    """Bytes of those entries."""
    entries_written: int = 0
    """Entries stored by the bookie that gets them."""
    bytes_written: int = 0
    """Bytes of those entries."""
    unreadable: int = 0
    """Entries that no bookie could give."""


@dataclass(slots=True)
class RecoveryStats:
    """Both parts of a process."""

    auditor: AuditorStats = field(default_factory=AuditorStats)
    """Of the auditor."""
    worker: WorkerStats = field(default_factory=WorkerStats)
    """Of the replication worker."""
