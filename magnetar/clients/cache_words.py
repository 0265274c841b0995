"""Words for the decisions of a broker's entry cache, by their names in its answers."""

from __future__ import annotations

CAUSES = {
    "expected_reads": "reads of it were expected",
    "recently_accessed": "it had been read since the last pass",
    "may_return": "a consumer that had not acknowledged it may return",
}
"""Causes of a requeue in words."""
REASONS = {
    "ttl": "its time was over",
    "size": "the cache was full",
    "ledger": "its ledger was deleted or could not be read",
    "invalidate": "no cursor needed it any more, or the topic was closed",
}
"""Reasons of an eviction in words."""
