"""The policy that the settings ask for."""

from __future__ import annotations

from broker.entry_cache.policies.magnetar.magnetar import Magnetar
from broker.entry_cache.policies.names import FIFO_TTL, MAGNETAR, PIP430_STASH
from broker.entry_cache.policies.pip430 import Pip430
from broker.entry_cache.policies.pip430_stash import Pip430Stash
from broker.entry_cache.policies.policy import Policy
from broker.entry_cache.policies.profile import BEFORE_PIP_430, PROFILES
from broker.entry_cache.settings import EntryCacheSettings


def make_policy(settings: EntryCacheSettings) -> Policy:
    if settings.policy == MAGNETAR:
        return Magnetar(settings)
    if settings.policy == PIP430_STASH:
        return Pip430Stash(settings)
    if settings.policy == FIFO_TTL:
        return Pip430(BEFORE_PIP_430, settings)
    return Pip430(PROFILES[settings.profile], settings)
