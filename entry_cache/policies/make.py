"""Makes the policy that the settings name."""

from __future__ import annotations

from entry_cache import policy_names
from entry_cache.policy import EvictionPolicy
from entry_cache.profiles import BEFORE_PIP_430, PROFILES
from entry_cache.removal_queue import RemovalQueue
from entry_cache.settings import CacheSettings, no_such_policy


def make_policy(settings: CacheSettings) -> EvictionPolicy:
    """Returns a new, empty policy of the kind `settings.policy`. ValueError for a name without a policy."""
    # Late imports: a broker has one policy, and each module that it does not use would lengthen its start.
    match settings.policy:
        case policy_names.PIP430:
            return RemovalQueue(PROFILES[settings.profile], settings)
        case policy_names.PIP430_STASH:
            from entry_cache.policies.stash import Pip430Stash

            return Pip430Stash(settings)
        case policy_names.FIFO_TTL:
            return RemovalQueue(BEFORE_PIP_430, settings)
        case policy_names.MAGNETAR:
            from entry_cache.policies.magnetar.magnetar import Magnetar

            return Magnetar(settings)
    # `CacheSettings` refuses unknown names, so this is a name that has no case above yet.
    raise ValueError(no_such_policy(settings.policy))
