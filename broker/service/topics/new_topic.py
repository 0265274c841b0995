"""Creates topics without opening them.

Partitions, as Pulsar does: a partitioned topic may have thousands that nobody uses yet. And shadow topics: the stored list
must name the source before the topic opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from broker.managed_ledger.managed_ledger_info import NO_PROPERTIES, SHADOW_SOURCE, StoredNodes
from broker.managed_ledger.opening import create_ledger_list
from broker.service.namespaces.namespaces import Json
from broker.service.policies.table import SHADOW_TOPICS
from broker.service.topics.stored_record import record_of_stored
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.errors import BadVersion, NotAllowed
from foundation.model.topic_name import TopicName, check_new_name, parse_topic_name

if TYPE_CHECKING:
    from bookkeeper.metadata.new_nodes import PutNew


async def store_topic(
    registry: TopicRegistry,
    name: TopicName,
    properties: Mapping[str, str] = NO_PROPERTIES,
    put: PutNew | None = None,
) -> None:
    """Stores a persistent topic, dormant where topics sleep; one that exists stays as it is. Raises BrokerError.

    `put` as in `create_ledger_list`.
    """
    environment = registry.environment
    with suppress(BadVersion):
        ledger_settings = registry.ledger_settings_of(name)
        info, node = await create_ledger_list(name.ledger_name, environment, ledger_settings, properties, put)
        # The levels of a shadow are those of its source, which only an opening knows. Partitions of other brokers' bundles
        # get their records there.
        ownership = registry.ownership
        sleeps = registry.settings.dormant_after_s and SHADOW_SOURCE not in properties
        if sleeps and ownership.bundle_of(name) in ownership.parts():
            nodes, keeps_nodes = StoredNodes(node, ()), not environment.metadata.is_shared
            record = record_of_stored(info, nodes, registry.now_ns(), keeps_nodes=keeps_nodes)
            assert record is not None
            # Of a topic of this name whose nodes somebody has removed.
            registry.dormant.drop(str(name))
            registry.dormant.add(name, record)
        registry.events.announce(name, exists=True)


async def create_shadow(registry: TopicRegistry, name: TopicName, properties: Mapping[str, str]) -> None:
    """Creates and opens a shadow topic without partitions. NotAllowed for a source that cannot be one."""
    check_new_name("Topic", name.local)
    await registry.check_topics_max(name.namespace, 1)
    await list_shadow(registry, name, properties[SHADOW_SOURCE])
    await registry.make(name, partial(store_topic, registry, name, properties))
    await registry.get(name, create=False)


async def list_shadow(
    registry: TopicRegistry, shadow: TopicName, source_text: str, partitions: int = 0
) -> None:
    """Adds a new topic to the shadow topics of its source, which keeps the messages that the shadow needs from here on.

    NotAllowed for a source that does not exist, that has another number of partitions, or that is a shadow itself.
    """
    source = parse_topic_name(source_text)
    if not source.is_persistent or not shadow.is_persistent:
        raise NotAllowed("Only persistent source topic is supported with shadow topics.")
    stored = await registry.partitions.find(source)
    if stored is None:
        if not await registry.is_stored(source):
            raise NotAllowed(f"Shadow source topic {source} does not exist")
        from broker.managed_ledger.shadows.stored_marks import source_in_store

        former = await source_in_store(registry.environment, source.ledger_name)
    else:
        former = stored.properties.get(SHADOW_SOURCE)
    if former is not None:
        raise NotAllowed(f"{source} is a shadow topic itself; name its source {former}")
    count = 0 if stored is None else stored.partitions
    if count != partitions:
        raise NotAllowed(
            f"Shadow source topic {source} has {count} partitions; the shadow topic needs as many"
        )

    def with_shadow(before: Json) -> Json:
        names: list[Json] = [*before] if isinstance(before, list) else []
        return names if str(shadow) in names else [*names, str(shadow)]

    await registry.namespaces.change_topic_policy(str(source.base), SHADOW_TOPICS, with_shadow)
