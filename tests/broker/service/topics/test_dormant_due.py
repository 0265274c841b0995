"""Which settings the due moments of dormant topics follow from."""

from __future__ import annotations

from typing import cast

import pytest

from broker.managed_ledger.settings import OffloadRules
from broker.service.consumer import SubscriptionType
from broker.service.policies.backlog_quota import EVICTION
from broker.service.settings import ServiceSettings
from broker.service.topics import dormant_topics
from broker.service.topics.dormant_due import due_ns_of, settings_that_count, used_at_ns_of
from broker.service.topics.dormant_topic import NOT_KNOWN, DormantSubscription, DormantTopic
from foundation.model.topic_name import parse_topic_name
from tests.broker.service.topics.test_reconfigure import reconfigure
from tests.fakes.stage import TOPIC, Stage

NAME = parse_topic_name(TOPIC)
SUBSCRIPTION = DormantSubscription("s", None, 5, 0, SubscriptionType.SHARED, False)


class Asked:
    """Settings that note which of them are asked for."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> object:
        self.names.add(name)
        return getattr(self._settings, name)


def record(*subscriptions: DormantSubscription, acked_closed_ms: int = NOT_KNOWN) -> DormantTopic:
    return DormantTopic(None, subscriptions, 0, 0, 5, 100, 100, 1, 1, acked_closed_ms, None)


async def test_settings_that_count_are_those_that_moments_ask_for() -> None:
    stage = Stage(
        ttl_s=60,
        quota_bytes=1,
        quota_age_s=60,
        quota_reaction=EVICTION,
        retention_mib=-1,
        retention_minutes=60,
        subscription_expires_min=60,
        delete_inactive=True,
    )
    policies = stage.registry.policies
    by_moments, by_count = Asked(policies.settings), Asked(policies.settings)
    policies.settings = cast(ServiceSettings, by_moments)
    for one in (record(SUBSCRIPTION), record(), record(acked_closed_ms=1)):
        used_at_ns_of(NAME, one, policies, 0)
        due_ns_of(NAME, one, policies, OffloadRules(), 0, 0)
    settings_that_count(cast(ServiceSettings, by_count), OffloadRules())
    assert by_count.names == by_moments.names


@pytest.mark.parametrize(("changed", "planned"), [("partitions_max", 0), ("ttl_s", 3)])
async def test_reconfigure_plans_dormant_topics_anew_when_their_moments_may_change(
    monkeypatch: pytest.MonkeyPatch, changed: str, planned: int
) -> None:
    stage, names = Stage(), list[str]()
    for number in range(3):
        stage.registry.dormant.add(parse_topic_name(f"{TOPIC}-{number}"), record(SUBSCRIPTION))
    monkeypatch.setattr(dormant_topics.DormantTopics, "plan", lambda _, name: names.append(name))
    reconfigure(stage, **{changed: 77})
    assert len(names) == planned


async def test_reconfigure_plans_dormant_topics_anew_when_a_storage_for_copies_is_named() -> None:
    rules = OffloadRules()
    settings = Stage().registry.settings
    assert settings_that_count(settings, rules) == settings_that_count(settings, OffloadRules())
    assert settings_that_count(settings, rules) != settings_that_count(settings, OffloadRules(threshold_s=9))
