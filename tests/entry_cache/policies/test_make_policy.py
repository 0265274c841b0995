"""Each name of a policy makes that policy; an unknown one is refused with the names to choose from."""

from __future__ import annotations

import re

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.policies.make import make_policy
from entry_cache.policy_names import FIFO_TTL, MAGNETAR, PIP430, PIP430_STASH, POLICY_NAMES

REFUSED = re.escape(f"no such cache policy: unknown; choose one of {', '.join(POLICY_NAMES)}")


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_policy_is_made_for_each_name(name: str) -> None:
    # The removal queue is named after the release whose rules it follows.
    expected = {PIP430: "4.2", PIP430_STASH: PIP430_STASH, FIFO_TTL: FIFO_TTL, MAGNETAR: MAGNETAR}
    assert make_policy(EntryCacheSettings(policy=name, profile="4.2")).name == expected[name]


def test_unknown_policy_is_refused_by_the_settings() -> None:
    with pytest.raises(ValueError, match=REFUSED):
        EntryCacheSettings(policy="unknown")


def test_name_without_a_policy_is_refused() -> None:
    settings = EntryCacheSettings()
    object.__setattr__(settings, "policy", "unknown")  # As if POLICY_NAMES had a name that no case makes.
    with pytest.raises(ValueError, match=REFUSED):
        make_policy(settings)
