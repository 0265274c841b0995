"""What the audits are told from outside: how young is too young to judge, and what is worth a line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    grace_s: int = 86_400
    """Younger nodes and ledgers are left out: somebody may be making them. Of unknown age counts as old enough."""
    ranges_min: int = 1000
    """Acked ranges of a subscription from which its holes are worth a line."""
    backlog_bytes_min: int = 1 << 30
    """Bytes that a subscription has before it from which its backlog is worth a line."""
    ttl_s: int = 0
    """Where no policy says otherwise; 0 = messages never expire."""
    retention_minutes: int = 0
    """Where no policy says otherwise; -1 = for ever."""
    slack_s: int = 3600
    """How long the broker's own checks may take to remove what is due."""
