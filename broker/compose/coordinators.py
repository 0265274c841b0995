"""The transaction coordinators of a broker, by its settings; where brokers share a store, those of its bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from broker.compose.background_tasks import BackgroundTasks
from broker.compose.timers import Timers
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.lifecycle.transaction_participants import RegistryParticipants
from broker.service.topics.topic_registry import TopicRegistry
from broker.service.transactions.coordinators import Coordinators
from broker.service.transactions.transaction_limits import TransactionLimits
from foundation.settings.settings import Settings

if TYPE_CHECKING:
    from broker.cluster.ownership import ClusterOwnership

TIME_OUTS_INTERVAL_S: Final = 0.1
"""Seconds between two looks for transactions whose time is over."""
OWNED_INTERVAL_S: Final = 2.0
"""Seconds between two looks for coordinators that this broker owns, or that nobody does."""


async def open_coordinators(
    registry: TopicRegistry, settings: Settings, timers: Timers, tasks: BackgroundTasks
) -> Coordinators:
    """Opens the coordinators, and lets the registry's topics ask them. Raises MetadataError and PersistenceError."""
    environment = registry.environment
    local = RegistryParticipants(registry, environment.wall_ms)
    cluster = None
    if registry.ownership.is_shared:
        # Late: a broker with a store of its own needs no cluster.
        from broker.cluster.transactions import ClusterTransactions

        cluster = ClusterTransactions(cast("ClusterOwnership", registry.ownership), local)
    coordinators = Coordinators(
        environment,
        ManagedLedgerSettings.of(settings),
        local,
        registry.partitions,
        spawn=tasks.spawn,
        limits=TransactionLimits.of(registry.settings),
        cluster=cluster,
    )
    registry.transaction_states = coordinators
    await coordinators.open()
    timers.every(TIME_OUTS_INTERVAL_S, coordinators.tick)
    if cluster is not None:
        timers.every(OWNED_INTERVAL_S, lambda: tasks.spawn(coordinators.keep_open(), "coordinators"))
    return coordinators
