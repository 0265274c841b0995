"""The PIP-430 entry cache: one policy over all that is cached, one entry cache per managed ledger.

Pure: no clock, no timer, no I/O. The owner passes `now_ns` and calls the periodic pass.
"""

from broker.entry_cache.active_cursors import ActiveCursors
from broker.entry_cache.cache_events import Event, Op
from broker.entry_cache.cache_stats import CacheStats, ReadStats, Reason
from broker.entry_cache.decisions import Decisions
from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.entry_cache_manager import VISITS_PER_SLICE, EntryCacheManager
from broker.entry_cache.policies.policy import NO_LIMIT, NOT_COUNTED, Policy, Removed
from broker.entry_cache.reader import Reader
from broker.entry_cache.settings import EntryCacheSettings

__all__ = [
    "NOT_COUNTED",
    "NO_LIMIT",
    "VISITS_PER_SLICE",
    "ActiveCursors",
    "CacheStats",
    "Decisions",
    "EntryCache",
    "EntryCacheManager",
    "EntryCacheSettings",
    "Event",
    "Op",
    "Policy",
    "ReadStats",
    "Reader",
    "Reason",
    "Removed",
]
