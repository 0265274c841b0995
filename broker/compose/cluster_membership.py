"""The ownership of topics that fits the metadata store: of all of them, or of bundles among the brokers that share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker.compose.background_tasks import BackgroundTasks
from broker.compose.timers import Timers
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.service.lifecycle import namespace_topics
from broker.service.namespaces.bundles import bundles_of
from broker.service.namespaces.namespaces import Namespaces
from broker.service.topics.topic_ownership import TopicOwnership
from broker.service.topics.topic_registry import TopicRegistry


def ownership_of(
    environment: ManagedLedgerEnvironment,
    namespaces: Namespaces,
    version: str,
    timers: Timers,
    tasks: BackgroundTasks,
    close_bundle: Callable[[str], Awaitable[None]],
) -> TopicOwnership:
    """Returns the ownership, which joins the cluster when it is opened. `close_bundle` closes the topics of a bundle."""
    store = environment.metadata
    if not store.is_shared:
        return TopicOwnership()
    # Late: a broker with a store of its own needs no cluster.
    from broker.cluster.ownership import REPORT_INTERVAL_S, ClusterOwnership

    ownership = ClusterOwnership(
        store, namespaces, version, spawn=tasks.spawn, wall_ms=environment.wall_ms, close_bundle=close_bundle
    )
    timers.every(REPORT_INTERVAL_S, lambda: tasks.spawn(ownership.tick(), "load report"))
    return ownership


async def unload_bundle(registry: TopicRegistry, bundle: str) -> None:
    """Closes the topics of a bundle, `tenant/namespace/range`."""
    namespace, _, text = bundle.rpartition("/")
    found = bundles_of(registry.namespaces, namespace).find(namespace, text)
    await namespace_topics.unload(registry, namespace, found)
