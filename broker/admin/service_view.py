"""What the admin interface needs of the broker, whoever composes it."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from broker.admin.stats import RatesOf
from broker.managed_ledger.ground import Ground
from broker.service.clusters import Clusters
from broker.service.health import HealthProbe
from broker.service.namespaces import Namespaces
from broker.service.topic_registry import TopicRegistry
from settings.settings import Settings


class AddressesView(Protocol):
    @property
    def service_url(self) -> str: ...

    @property
    def admin_url(self) -> str: ...


class BrokerView(Protocol):
    settings: Settings
    ground: Ground
    registry: TopicRegistry
    namespaces: Namespaces
    version: str

    @property
    def addresses(self) -> AddressesView:
        """Complete as soon as the first request can come."""
        ...


BROKER = web.AppKey("broker", BrokerView)
CLUSTERS = web.AppKey("clusters", Clusters)
RATES: web.AppKey[RatesOf] = web.AppKey("rates")
HEALTH = web.AppKey("health", HealthProbe)
