"""Creates partitions without opening them, as Pulsar does: a partitioned topic may have thousands that nobody uses yet."""

from __future__ import annotations

from contextlib import suppress

from broker.managed_ledger.managed_ledger_info import StoredNodes
from broker.managed_ledger.opening import create_ledger_list
from broker.service.topics.stored_record import record_of_stored
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.errors import BadVersion
from foundation.model.topic_name import TopicName


async def store_partition(registry: TopicRegistry, name: TopicName) -> None:
    """Stores a persistent partition, dormant where topics sleep; one that exists stays as it is. Raises BrokerError."""
    environment = registry.environment
    with suppress(BadVersion):
        ledger_settings = registry.ledger_settings_of(name)
        info, node = await create_ledger_list(name.ledger_name, environment, ledger_settings)
        if registry.settings.dormant_after_s:
            nodes, keeps_nodes = StoredNodes(node, ()), not environment.metadata.is_shared
            record = record_of_stored(info, nodes, registry.now_ns(), keeps_nodes=keeps_nodes)
            assert record is not None
            registry.dormant.add(name, record)
        registry.events.announce(name, exists=True)
