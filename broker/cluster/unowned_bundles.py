"""UnownedBundles: bundles with topics that nobody has looked up get an owner, where topics fall asleep.

What is due on a topic acts at the broker that owns it. After a start of all brokers, or the end of one, nobody has the
bundles whose topics have no clients. The leader looks for these, and has the broker take each that a lookup would find.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.cluster.ownership import ClusterOwnership
from broker.cluster.records import BUNDLES
from broker.managed_ledger.managed_ledger_info import ROOT
from broker.service.namespaces.bundles import bundles_of, topic_with_hash
from broker.service.namespaces.namespaces import NamespaceNotFound, Namespaces
from foundation.loop.slices import in_slices
from foundation.model.errors import BrokerError
from foundation.model.topic_name import PERSISTENT, TopicName, parse_topic_name

log = logging.getLogger("magnetar")

LOOK_INTERVAL_S: Final = 30
"""Seconds between two looks. A look reads one list of each namespace, and its topics only where a bundle has no owner."""


class UnownedBundles:
    """Looks for them in the namespaces of a metadata store."""

    def __init__(
        self,
        ownership: ClusterOwnership,
        store: MetadataStore,
        namespaces: Namespaces,
        is_wanted: Callable[[], bool],
        now_ns: Callable[[], int],
    ) -> None:
        """`is_wanted`: whether topics fall asleep. `now_ns`: the monotonic clock."""
        self._ownership, self._store, self._namespaces = ownership, store, namespaces
        self._is_wanted, self._now_ns = is_wanted, now_ns
        self._running = False

    async def look(self) -> None:
        """Has brokers take the bundles of all namespaces; does nothing unless this broker leads."""
        ownership, namespaces = self._ownership, self._namespaces
        if self._running or not self._is_wanted() or ownership.leader != ownership.owner.broker_id:
            return
        self._running = True
        try:
            for namespace in [one for tenant in namespaces.tenants() for one in namespaces.names(tenant)]:
                try:
                    await self._look_at(namespace)
                except NamespaceNotFound:
                    continue  # Deleted meanwhile.
                except BrokerError as error:
                    log.warning(
                        "! topics of %s are not looked at for bundles without owners: %s", namespace, error
                    )
        finally:
            self._running = False

    async def _look_at(self, namespace: str) -> None:
        bundles = bundles_of(self._namespaces, namespace)
        free = {str(one) for one in bundles.all()} - {*await self._store.children(f"{BUNDLES}/{namespace}")}
        if not free:
            return
        names = await self._store.children(f"{ROOT}/{namespace}/{PERSISTENT}")
        async for part in in_slices(names, self._now_ns):
            name = TopicName.of_ledger_name(f"{namespace}/{PERSISTENT}/{part}")
            bundle = bundles.of(str(name))
            # Brokers open their own topics when they need them.
            if str(bundle) in free and not name.local.startswith("__"):
                free.discard(str(bundle))
                # Not this name: another program may have stored one that brokers refuse.
                asked = parse_topic_name(topic_with_hash(namespace, bundle.low))
                try:
                    await self._ownership.located(asked)
                except BrokerError as error:
                    # Others may get an owner; this one is tried again at the next look.
                    log.warning("! bundle %s has no owner yet: %s", bundle, error)
                if not free:
                    return
