"""The limits that a user gives an audit. They are ages, sizes and policies from which a row becomes a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Options of `magnetar pipeline audit`."""

    grace_s: int = 86_400
    """The age from which nodes and ledgers are judged.

    The owner of a younger one may not be written yet. An unknown age counts as old.
    """
    ranges_min: int = 1000
    """The fewest acked ranges of a subscription that are a finding."""
    backlog_bytes_min: int = 1 << 30
    """The smallest backlog of a subscription, in bytes, that is a finding."""
    ttl_s: int = 0
    """The TTL of topics without a policy; 0 = messages never expire."""
    retention_minutes: int = 0
    """The retention of topics without a policy; -1 = for ever."""
    slack_s: int = 3600
    """The time that the broker's own checks may take to remove a ledger."""
