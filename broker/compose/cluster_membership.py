"""The ownership of topics that fits the metadata store: of all of them, or of bundles among the brokers that share it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.compose.background_tasks import BackgroundTasks
from broker.compose.cache_counts import PublishElsewhere
from broker.compose.timers import Timers
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.service.lifecycle import namespace_topics
from broker.service.namespaces.bundles import Bundle
from broker.service.namespaces.namespaces import Namespaces
from broker.service.successor import Successor
from broker.service.topics.topic_ownership import TopicOwnership
from broker.service.topics.topic_registry import TopicRegistry
from broker.service.transactions.coordinators import ASSIGN_TOPIC
from foundation.settings.settings import Settings

_TO_BROKERS: Final = (
    "brokerClientTlsEnabled",
    "brokerClientAuthenticationPlugin",
    "brokerClientAuthenticationParameters",
)
"""Keys that may change at run time, and that name files."""


class Composed(Protocol):
    """A broker before it has topics."""

    settings: Settings
    """The settings of the start."""
    environment: ManagedLedgerEnvironment
    """The metadata store and the clock."""
    namespaces: Namespaces
    """Says which bundles a namespace has."""
    version: str
    """Magnetar's version."""


def ownership_of(broker: Composed, timers: Timers, tasks: BackgroundTasks) -> TopicOwnership:
    """Returns the ownership, which joins the cluster when it is opened. `serve` makes it complete."""
    store = broker.environment.metadata
    if not store.is_shared:
        return TopicOwnership()
    # Late: a broker with a store of its own needs no cluster.
    from broker.cluster.balance_settings import BalanceSettings
    from broker.cluster.ownership import ClusterOwnership
    from broker.peers.peer_settings import PeerSettings
    from broker.peers.peers import Peers

    PeerSettings.of(broker.settings).check_files()  # Both raise at the start, and not with the first request.
    ownership = ClusterOwnership(
        store,
        broker.namespaces,
        broker.version,
        spawn=tasks.spawn,
        now_ns=broker.environment.now_ns,
        wall_ms=broker.environment.wall_ms,
        session_s=broker.settings.int("metadataStoreSessionTimeoutMillis") / 1000,
        peers=Peers(lambda: PeerSettings.of(broker.settings)),
        settings=lambda: BalanceSettings.of(broker.settings),
    )
    ownership.leases.made = broker.environment.ids.forget
    repeat(timers, broker, lambda: tasks.spawn(ownership.tick(), "load report"))
    return ownership


def check_for(store: MetadataStore) -> Callable[[Settings, Settings], None]:
    """Returns the check of a change at run time, which refuses values with which no broker could ask another."""

    def check(before: Settings, after: Settings) -> None:
        if store.is_shared and any(before.value(name) != after.value(name) for name in _TO_BROKERS):
            # Late, as above.
            from broker.peers.peer_settings import PeerSettings

            PeerSettings.of(after).check_files()

    return check


def repeat(timers: Timers, broker: Composed, tick: Callable[[], object]) -> None:
    """Calls `tick` every `loadBalancerReportUpdateMinIntervalMillis`, which may change at run time."""

    def again() -> None:
        tick()
        repeat(timers, broker, tick)

    timers.after(broker.settings.int("loadBalancerReportUpdateMinIntervalMillis") / 1000, again)


def serve(registry: TopicRegistry) -> TopicRegistry:
    """Lets the registry keep policies as other brokers do, and its ownership close topics; returns the registry."""
    registry.ownership.close_bundle = partial(unload_bundle, registry)
    if registry.ownership.is_shared:
        # Late, as above.
        from broker.service.topics.policy_events import PolicyEvents

        PolicyEvents(registry, registry.environment)
    return registry


def begin_shared_work(registry: TopicRegistry, timers: Timers, tasks: BackgroundTasks) -> None:
    """Begins the work with the other brokers of the store: rates of resource groups, bundles that nobody has."""
    if not registry.ownership.is_shared:
        return
    # Late, as above.
    from broker.cluster.group_shares import SHARE_INTERVAL_S, GroupShares
    from broker.cluster.ownership import ClusterOwnership
    from broker.cluster.unowned_bundles import LOOK_INTERVAL_S, UnownedBundles

    store, broker = registry.environment.metadata, registry.ownership.owner.broker_id
    shares = GroupShares(store, registry.resource_groups, registry.limits, broker)
    timers.every(SHARE_INTERVAL_S, lambda: tasks.spawn(shares.tick(), "shares of resource groups"))
    ownership, namespaces = registry.ownership, registry.namespaces
    assert isinstance(ownership, ClusterOwnership)
    unowned = UnownedBundles(
        ownership, store, namespaces, lambda: bool(registry.settings.dormant_after_s), registry.now_ns
    )
    timers.every(LOOK_INTERVAL_S, lambda: tasks.spawn(unowned.look(), "bundles without an owner"))


def publisher_elsewhere(registry: TopicRegistry) -> PublishElsewhere | None:
    """Returns the function that publishes to other brokers' topics; None for a broker alone on its store."""
    if not registry.ownership.is_shared:
        return None
    # Late, as above.
    from broker.cluster.ownership import ClusterOwnership
    from broker.cluster.publish_elsewhere import publish_at_owner

    assert isinstance(registry.ownership, ClusterOwnership)
    return partial(publish_at_owner, registry.ownership.peers)


async def unload_bundle(registry: TopicRegistry, bundle: str, successor: Successor | None = None) -> None:
    """Closes the topics of a bundle, `tenant/namespace/range`; forgets dormant ones that another broker may own next."""
    namespace, _, text = bundle.rpartition("/")
    # One that was divided by another broker has topics here too.
    found = Bundle.parsed(text)
    try:
        if registry.transaction_states is not None and namespace == ASSIGN_TOPIC.namespace:
            await registry.transaction_states.close_those(found.has)
    finally:
        try:
            await namespace_topics.unload(registry, namespace, found, successor)
        finally:
            # Also where a topic could not store its last acknowledgements: a record would hide what the next owner does.
            if registry.ownership.is_shared:
                await registry.dormant.forget_part(bundle, namespace, found.has)
