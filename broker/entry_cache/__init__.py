"""The PIP-430 entry cache: one removal queue for the broker, one entry cache per managed ledger.

Pure: no clock, no timer, no I/O. The owner passes `now_ns` and calls the periodic pass.
"""

from broker.entry_cache.cache_stats import CacheStats, ReadStats, Reason
from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.entry_cache_manager import VISITS_PER_SLICE, EntryCacheManager
from broker.entry_cache.profile import NOT_COUNTED, PROFILE_4_2, PROFILE_5_0, PROFILES, Profile
from broker.entry_cache.removal_queue import NO_LIMIT, Removed
from broker.entry_cache.settings import EntryCacheSettings

__all__ = [
    "NOT_COUNTED",
    "NO_LIMIT",
    "PROFILES",
    "PROFILE_4_2",
    "PROFILE_5_0",
    "VISITS_PER_SLICE",
    "CacheStats",
    "EntryCache",
    "EntryCacheManager",
    "EntryCacheSettings",
    "Profile",
    "ReadStats",
    "Reason",
    "Removed",
]
