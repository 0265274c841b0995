"""Makes the policy that the settings name."""

from __future__ import annotations

from broker.entry_cache.policies.magnetar.magnetar import Magnetar
from broker.entry_cache.policies.names import FIFO_TTL, MAGNETAR, PIP430_STASH
from broker.entry_cache.policies.stash import Pip430Stash
from broker.entry_cache.policy import Policy
from broker.entry_cache.profiles import BEFORE_PIP_430, PROFILES
from broker.entry_cache.removal_queue import RemovalQueue
from broker.entry_cache.settings import EntryCacheSettings


def make_policy(settings: EntryCacheSettings) -> Policy:
    """Returns a new, empty policy of the kind `settings.policy`."""
    if settings.policy == MAGNETAR:
        return Magnetar(settings)
    if settings.policy == PIP430_STASH:
        return Pip430Stash(settings)
    if settings.policy == FIFO_TTL:
        return RemovalQueue(BEFORE_PIP_430, settings)
    return RemovalQueue(PROFILES[settings.profile], settings)
