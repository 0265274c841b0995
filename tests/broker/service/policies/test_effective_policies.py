"""The table of policies, the forms of their values, and their effect on topics that are open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.config.keys import BROKER_KEYS
from broker.service.namespaces.namespaces import GLOBAL, Namespaces
from broker.service.namespaces.stored_policies import ROOT
from broker.service.policies import table
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.forms import PolicyRefused, Whole, WrongCombination, WrongType
from broker.service.policies.table import POLICIES, Policy
from broker.service.policies.values import (
    AUTO_TOPIC_CREATION,
    DISPATCH_RATE,
    PERSISTENCE,
    PUBLISH_RATE,
    RETENTION,
    DispatchRate,
    PublishRate,
)
from broker.service.producer import Producer
from broker.service.settings import ServiceSettings
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import EncryptionRequired
from foundation.model.errors import NotAllowed, ProducerBusy
from foundation.model.topic_name import parse_topic_name
from foundation.settings.keys import INT_MAX, LONG_MAX
from foundation.value import Json
from tests.fakes.messages import message
from tests.fakes.metadata import FakeMetadata
from tests.fakes.ports import FakeProducerPort
from tests.fakes.sends import send
from tests.fakes.stage import EXCLUSIVE, KEY_SHARED, SHARED, TOPIC, Stage, port_of

NAME = parse_topic_name(TOPIC)


async def opened(metadata: FakeMetadata | None = None) -> Namespaces:
    namespaces = Namespaces(metadata or FakeMetadata(), "standalone")
    await namespaces.open()
    return namespaces


# The table


def test_policy_names_and_words_are_unique() -> None:
    for names in (
        [policy.name for policy in POLICIES if policy.name],
        [policy.topic_name for policy in POLICIES if policy.topic_name],
        [policy.namespace.word for policy in POLICIES if policy.namespace],
        [policy.topic.word for policy in POLICIES if policy.topic],
    ):
        assert len(set(names)) == len(names) > 0


WITH_OWN_ROUTES = (table.BACKLOG, table.SCHEMA_UPDATES_BY_REPLICATORS)
"""Policies whose value is set by parts, or with another one, so that their routes do not follow from the table."""


@pytest.mark.parametrize(
    "policy", [one for one in POLICIES if one not in WITH_OWN_ROUTES], ids=lambda policy: policy.title
)
def test_policy_has_routes_where_it_has_names(policy: Policy[Any]) -> None:
    assert bool(policy.name) == (policy.namespace is not None)
    assert bool(policy.topic_name) == (policy.topic is not None)
    assert not policy.key or BROKER_KEYS.keys[policy.key].used
    if policy.key:
        assert policy.setting is not None


@pytest.mark.parametrize(
    "policy", [policy for policy in POLICIES if policy.setting], ids=lambda policy: policy.title
)
def test_setting_of_a_policy_is_a_value_of_its_form(policy: Policy[Any]) -> None:
    assert policy.setting is not None
    value = policy.setting(ServiceSettings())
    assert policy.form.read(policy.form.write(value)) == value
    # There is no entry filter, so each name is refused, and the broker's setting names none.
    if policy is not table.ENTRY_FILTERS:
        policy.form.check(value)


@pytest.mark.parametrize(
    ("policy", "settings", "value"),
    [
        (table.MAX_PRODUCERS, {"producers_max": 3}, 3),
        (table.MAX_CONSUMERS, {"consumers_max_per_topic": 3}, 3),
        (table.MAX_CONSUMERS_PER_SUBSCRIPTION, {"consumers_max_per_subscription": 3}, 3),
        (table.MAX_SUBSCRIPTIONS, {"subscriptions_max": 3}, 3),
        (table.MAX_TOPICS, {"topics_max_per_namespace": 3}, 3),
        (table.SUBSCRIPTION_TYPES, {"subscription_types": ("Shared",)}, ("Shared",)),
        (table.ENCRYPTION_REQUIRED, {"encryption_required": True}, True),
        (table.DEDUPLICATION, {"deduplication": True}, True),
        (table.MAX_UNACKED_PER_CONSUMER, {"unacked_max_per_consumer": 3}, 3),
        (table.MAX_UNACKED_PER_SUBSCRIPTION, {"unacked_max_per_subscription": 3}, 3),
    ],
    ids=lambda value: getattr(value, "title", None),
)
async def test_policy_without_a_value_is_the_setting_of_the_broker(
    policy: Policy[Any], settings: dict[str, object], value: object
) -> None:
    policies = EffectivePolicies(await opened(), ServiceSettings(**settings))  # type: ignore[arg-type]
    assert policies.of(NAME, policy) == value


# Forms


@pytest.mark.parametrize("value", [True, "x", "", None, [5], {"a": 5}, 5.5, 10**23, "9" * 5000, -(2**40)])
def test_whole_number_refuses_other_types(value: Json) -> None:
    with pytest.raises(WrongType):
        Whole().read(value)


def test_whole_number_checks_its_range() -> None:
    form = Whole()
    assert form.read("5") == form.read(5) == 5
    for value in (0, INT_MAX):
        form.check(form.read(value))
    with pytest.raises(PolicyRefused, match="-1: allowed is a whole number from 0"):
        form.check(form.read(-1))
    assert Whole(0, LONG_MAX, LONG_MAX).read(2**40) == 2**40


def test_structure_takes_defaults_ignores_unknown_members_and_names_the_wrong_one() -> None:
    assert DISPATCH_RATE.read({"dispatchThrottlingRateInMsg": 10, "x": 1}) == DispatchRate(10)
    assert DISPATCH_RATE.write(DispatchRate(10, period_s=1)) == {
        "dispatchThrottlingRateInMsg": 10,
        "dispatchThrottlingRateInByte": 0,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    }
    assert PUBLISH_RATE.read({}) == PublishRate(-1, -1)
    with pytest.raises(WrongType, match=r'^publishThrottlingRateInMsg="x"'):
        PUBLISH_RATE.read({"publishThrottlingRateInMsg": "x"})
    with pytest.raises(WrongType):
        PUBLISH_RATE.read([])


@pytest.mark.parametrize(("minutes", "mib"), [(10, 0), (0, 10), (0, -1)], ids=lambda value: str(value))
def test_retention_refuses_one_limit_of_zero(minutes: int, mib: int) -> None:
    value = RETENTION.read({"retentionTimeInMinutes": minutes, "retentionSizeInMB": mib})
    with pytest.raises(WrongCombination):
        RETENTION.check(value)


@pytest.mark.parametrize(
    ("copies", "allowed"), [((3, 2, 2), True), ((1, 2, 1), False), ((0, 0, 0), False), ((6, 1, 1), False)]
)
def test_persistence_wants_as_many_bookies_as_copies(copies: tuple[int, int, int], allowed: bool) -> None:
    ensemble, write, ack = copies
    value = PERSISTENCE.read(
        {"bookkeeperEnsemble": ensemble, "bookkeeperWriteQuorum": write, "bookkeeperAckQuorum": ack}
    )
    if allowed:
        PERSISTENCE.check(value)
    else:
        with pytest.raises(WrongCombination):
            PERSISTENCE.check(value)


@pytest.mark.parametrize(
    ("kind", "partitions", "allowed"),
    [
        (None, None, False),
        ("x", 2, False),
        ("partitioned", None, False),
        ("partitioned", 0, False),
        ("partitioned", 2, True),
        ("non-partitioned", None, True),
        ("non-partitioned", 2, False),
    ],
)
def test_automatic_creation_needs_a_type_that_fits_its_partitions(
    kind: str | None, partitions: int | None, allowed: bool
) -> None:
    value = AUTO_TOPIC_CREATION.read(
        {"allowAutoTopicCreation": True, "topicType": kind, "defaultNumPartitions": partitions}
    )
    if allowed:
        AUTO_TOPIC_CREATION.check(value)
    else:
        with pytest.raises(PolicyRefused):
            AUTO_TOPIC_CREATION.check(value)


# Precedence


async def test_narrower_level_wins_and_a_removed_one_uncovers_the_wider() -> None:
    namespaces = await opened()
    policies = EffectivePolicies(namespaces, ServiceSettings(producers_max=1))
    policy = table.MAX_PRODUCERS
    seen = [policies.of(NAME, policy)]
    await namespaces.set_policy("public/default", policy.name, 2)
    seen.append(policies.of(NAME, policy))
    await namespaces.set_topic_policy(TOPIC, GLOBAL + policy.topic_name, 3)
    seen.append(policies.of(NAME, policy))
    # 0 is a value: it lifts the limits of the wider levels.
    await namespaces.set_topic_policy(TOPIC, policy.topic_name, 0)
    seen.append(policies.of(NAME, policy))
    assert seen == [1, 2, 3, 0]
    assert policies.of(NAME.with_partition(7), policy) == 0
    assert policies.of(parse_topic_name(f"{TOPIC}x"), policy) == 2
    await namespaces.forget_topic(TOPIC)
    await namespaces.set_policy("public/default", policy.name, None)
    assert policies.of(NAME, policy) == 1


async def test_topic_policies_have_no_effect_when_they_are_switched_off() -> None:
    namespaces = await opened()
    await namespaces.set_topic_policy(TOPIC, table.MAX_PRODUCERS.topic_name, 3)
    policies = EffectivePolicies(namespaces, ServiceSettings(topic_policies=False))
    assert policies.of(NAME, table.MAX_PRODUCERS) == 0


async def test_stored_value_of_another_type_has_no_effect() -> None:
    namespaces = await opened()
    await namespaces.set_policy("public/default", table.MAX_PRODUCERS.name, {"x": 1})
    await namespaces.set_policy("public/default", table.SUBSCRIPTION_TYPES.name, [])
    policies = EffectivePolicies(namespaces, ServiceSettings(producers_max=4))
    assert policies.of(NAME, table.MAX_PRODUCERS) == 4
    assert len(policies.of(NAME, table.SUBSCRIPTION_TYPES)) == 4


async def test_policies_stored_by_an_earlier_version_are_read() -> None:
    metadata = FakeMetadata()
    stored = {"deduplication": True, "autoTopicCreation": {"allowAutoTopicCreation": False}}
    await metadata.put(f"{ROOT}/public", b"{}")
    await metadata.put(f"{ROOT}/public/default", json.dumps(stored).encode())
    policies = EffectivePolicies(await opened(metadata), ServiceSettings())
    assert policies.deduplicates(NAME)
    assert not policies.may_create_topics("public/default")


async def test_deleted_namespace_loses_the_policies_of_its_topics() -> None:
    metadata = FakeMetadata()
    namespaces = await opened(metadata)
    await namespaces.create("public/n")
    gone, kept = "non-persistent://public/n/t", "non-persistent://public/nn/t"
    for topic in (gone, kept):
        await namespaces.set_topic_policy(topic, "maxMessageSize", 5)
    await namespaces.delete("public/n")
    for fresh in (namespaces, await opened(metadata)):
        assert fresh.topic_policy(gone, "maxMessageSize") is None
        assert fresh.topic_policy(kept, "maxMessageSize") == 5


# Effects


async def set_topic_policy(stage: Stage, policy: Policy[Any], value: Json, topic: str = TOPIC) -> None:
    await stage.run(stage.namespaces.set_topic_policy(topic, policy.topic_name, value))


async def set_policy(stage: Stage, policy: Policy[Any], value: Json) -> None:
    await stage.run(stage.namespaces.set_policy("public/default", policy.name, value))


async def test_message_above_the_topics_limit_is_refused_at_once() -> None:
    stage = Stage()
    topic = await stage.open()
    producer = await stage.producer(topic)
    await set_topic_policy(stage, table.MAX_MESSAGE_SIZE, 50)
    send(producer, 0, b"x" * 51)
    [(sequence, error)] = port_of(producer).refusals
    assert (sequence, str(error)) == (0, "Exceed maximum message size")
    # A chunk passes; its receipt comes with those below.
    send(producer, 0, b"x" * 51, chunk=True)
    send(producer, 1, b"x" * 50)
    await set_topic_policy(stage, table.MAX_MESSAGE_SIZE, None)
    send(producer, 2, b"x" * 51)
    await stage.settle()
    assert [sequence for sequence, _, _ in port_of(producer).receipts] == [0, 1, 2]


async def test_producers_that_do_not_encrypt_are_disconnected_when_encryption_is_required() -> None:
    stage = Stage()
    topic = await stage.open()
    plain, encrypted = await stage.producer(topic, "plain"), await stage.producer(topic, "encrypted")
    encrypted.encrypted = True
    await set_policy(stage, table.ENCRYPTION_REQUIRED, True)
    assert port_of(plain).events == ["closed"]
    assert port_of(encrypted).events == []
    assert list(topic.access.producers.values()) == [encrypted]


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_message_of_an_encrypting_producer_is_refused_when_it_is_not_encrypted(domain: str) -> None:
    stage = Stage(encryption_required=True)
    topic = await stage.open(f"{domain}://public/default/t")
    producer = Producer(topic, FakeProducerPort(), producer_id=0, name="p", encrypted=True)
    await topic.add_producer(producer)
    send(producer, 0, message(b"plain"))
    [(_, error)] = port_of(producer).refusals
    assert isinstance(error, EncryptionRequired)
    with pytest.raises(EncryptionRequired):
        await stage.producer(topic, "plain")


async def test_namespace_cannot_lift_the_brokers_demand_for_encryption() -> None:
    stage = Stage(encryption_required=True)
    topic = await stage.open()
    await set_policy(stage, table.ENCRYPTION_REQUIRED, False)
    assert topic.encryption_required


async def test_subscription_type_is_refused_by_topic_namespace_and_setting() -> None:
    stage = Stage()
    topic = await stage.open()
    await set_policy(stage, table.SUBSCRIPTION_TYPES, ["Exclusive"])
    with pytest.raises(NotAllowed, match="does not allow Shared subscriptions; allowed: Exclusive"):
        await stage.consume(topic, SHARED)
    await stage.consume(topic, EXCLUSIVE, subscription="e")
    await set_topic_policy(stage, table.SUBSCRIPTION_TYPES, ["Shared"])
    await stage.consume(topic, SHARED)
    assert "e" in topic.subscriptions, "connected consumers stay"
    with pytest.raises(NotAllowed):
        await stage.consume(topic, KEY_SHARED, subscription="k")


async def test_key_shared_is_refused_when_the_setting_is_off() -> None:
    stage = Stage(key_shared=False)
    topic = await stage.open()
    with pytest.raises(NotAllowed, match="Key_Shared subscription is disabled"):
        await stage.consume(topic, KEY_SHARED)


async def test_limits_of_a_topic_refuse_what_comes_and_keep_what_is_connected() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.producer(topic, "a")
    await stage.producer(topic, "b")
    await set_topic_policy(stage, table.MAX_PRODUCERS, 2)
    with pytest.raises(ProducerBusy):
        await stage.producer(topic, "c")
    await set_topic_policy(stage, table.MAX_PRODUCERS, 1)
    assert len(topic.access.producers) == 2
    await set_topic_policy(stage, table.MAX_SUBSCRIPTIONS, 1)
    await stage.consume(topic, subscription="one")
    with pytest.raises(NotAllowed):
        await stage.consume(topic, subscription="two")


async def test_limit_of_unacknowledged_messages_holds_for_a_connected_consumer() -> None:
    stage = Stage()
    topic = await stage.open()
    _, consumer, port = await stage.consume(topic, SHARED, permits=100)
    await set_topic_policy(stage, table.MAX_UNACKED_PER_CONSUMER, 2)
    await stage.publish(topic, 5)
    assert len(port.got) == 2
    assert consumer.blocked
    await set_topic_policy(stage, table.MAX_UNACKED_PER_CONSUMER, 4)
    await stage.settle()
    assert len(port.got) == 4
    await set_topic_policy(stage, table.MAX_UNACKED_PER_CONSUMER, 0)
    await stage.settle()
    assert len(port.got) == 5


async def test_limit_of_unacknowledged_messages_holds_for_a_subscription() -> None:
    stage = Stage()
    topic = await stage.open()
    await set_policy(stage, table.MAX_UNACKED_PER_SUBSCRIPTION, 3)
    _, _, port = await stage.consume(topic, SHARED, permits=100)
    await stage.publish(topic, 3)
    await stage.publish(topic, 2)
    assert len(port.got) == 3
    await set_topic_policy(stage, table.MAX_UNACKED_PER_SUBSCRIPTION, 0)
    await stage.settle()
    assert len(port.got) == 5


async def test_topics_without_policies_share_the_settings_of_the_broker() -> None:
    stage = Stage()
    topic = await stage.open()
    assert topic.dispatch_settings is stage.registry.settings


async def test_change_of_a_topic_reaches_its_partitions_and_no_other_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    await stage.open()
    await stage.run(stage.partitioned.create(parse_topic_name(f"{TOPIC}-p"), 2))
    for number in range(2):
        await stage.open(f"{TOPIC}-p-partition-{number}")
    told: list[str] = []
    applied = PersistentTopic.policies_changed

    async def noted(topic: PersistentTopic) -> None:
        told.append(str(topic.name))
        await applied(topic)

    monkeypatch.setattr(PersistentTopic, "policies_changed", noted)
    await set_topic_policy(stage, table.MAX_MESSAGE_SIZE, 50, f"{TOPIC}-p")
    assert told == [f"{TOPIC}-p-partition-0", f"{TOPIC}-p-partition-1"]
    assert [topic.message_bytes_max for topic in stage.registry.topics.values()] == [0, 50, 50]


async def test_topic_that_opens_while_a_policy_changes_has_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    await stage.open(f"{TOPIC}-other")
    applied = PersistentTopic.policies_changed
    changed = False

    async def changing(topic: PersistentTopic) -> None:
        nonlocal changed
        await applied(topic)
        if not changed:
            changed = True
            await stage.namespaces.set_topic_policy(TOPIC, table.MAX_MESSAGE_SIZE.topic_name, 50)

    monkeypatch.setattr(PersistentTopic, "policies_changed", changing)
    topic = await stage.open()
    assert topic.message_bytes_max == 50


async def test_namespace_refuses_topics_above_its_limit() -> None:
    stage = Stage()
    await stage.open()
    await set_policy(stage, table.MAX_TOPICS, 3)
    with pytest.raises(NotAllowed, match="Exceed maximum number of topics in namespace"):
        await stage.run(stage.partitioned.create(parse_topic_name(f"{TOPIC}-p"), 3))
    assert await stage.registry.partitions.count(parse_topic_name(f"{TOPIC}-p")) == 0
    await stage.run(stage.partitioned.create(parse_topic_name(f"{TOPIC}-p"), 2))
    with pytest.raises(NotAllowed):
        await stage.open(f"{TOPIC}-2")
    await set_policy(stage, table.MAX_TOPICS, None)
    await stage.open(f"{TOPIC}-2")


async def test_deleted_topic_loses_its_policies() -> None:
    stage = Stage()
    await stage.open()
    await set_topic_policy(stage, table.MAX_MESSAGE_SIZE, 50)
    await stage.run(stage.deletions.topic(NAME, force=True))
    assert (await stage.open()).message_bytes_max == 0
