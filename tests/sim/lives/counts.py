"""Counts of events in histories of topics, summed over the histories."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class Counts:
    """Operations of one history."""

    confirmed: int = 0
    runs_of_several: int = 0
    """Runs of more than one SEND."""
    rates_changed: int = 0
    paused: int = 0
    """Times that a producer had to wait for a publish rate."""
    trimmed: int = 0
    compacted: int = 0
    copies_made: int = 0
    ledgers_moved: int = 0
    """Removed from the bookies while a subscription needed them."""
    fallen_asleep: int = 0
    holes_redelivered: int = 0
    expired: int = 0
    deleted: int = 0
    resumed: int = 0
    quarantined: int = 0
    put_back: int = 0
    exported: int = 0
    leaks_deleted: int = 0
    brokers_killed: int = 0
    brokers_stopped: int = 0
    operators_killed: int = 0
    clock_jumps: int = 0
    bookies_lost: int = 0
    copied: int = 0

    def add(self, other: Counts) -> None:
        """Adds another history's."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def text(self) -> str:
        return ", ".join(
            f"{getattr(self, field.name)} {field.name.replace('_', ' ')}" for field in fields(self)
        )
