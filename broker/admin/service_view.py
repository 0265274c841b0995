"""What the admin interface needs of the broker, whoever composes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from aiohttp import web

from broker.admin.stats import RatesOf
from broker.entry_cache.compose import ComposedCache
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.service.clusters import Clusters
from broker.service.health import HealthProbe
from broker.service.namespaces import Namespaces
from broker.service.partitioned_topics import PartitionedTopics
from broker.service.topic_registry import TopicRegistry
from settings.settings import Note, Settings


class AddressesView(Protocol):
    @property
    def service_url(self) -> str: ...

    @property
    def admin_url(self) -> str: ...


class DynamicSettingsView(Protocol):
    """What may be and what is changed at run time; the errors are the settings room's."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def texts(self) -> Mapping[str, str]: ...

    async def set(self, name: str, text: str) -> Sequence[Note]: ...

    async def unset(self, name: str) -> Sequence[Note]: ...


class BrokerView(Protocol):
    settings: Settings
    """Those that hold now."""
    cache: ComposedCache
    environment: ManagedLedgerEnvironment
    registry: TopicRegistry
    partitioned: PartitionedTopics
    namespaces: Namespaces
    version: str

    @property
    def dynamic_settings(self) -> DynamicSettingsView: ...

    @property
    def addresses(self) -> AddressesView:
        """Complete as soon as the first request can come."""
        ...


BROKER = web.AppKey("broker", BrokerView)
CLUSTERS = web.AppKey("clusters", Clusters)
RATES: web.AppKey[RatesOf] = web.AppKey("rates")
HEALTH = web.AppKey("health", HealthProbe)
