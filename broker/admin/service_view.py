"""BrokerView: the parts of a composed broker that the handlers of the admin API use, and where they find them.

`broker.compose` lies above this room, so the handlers know a broker by this protocol alone. `create_app` stores one
object under each of the keys below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from aiohttp import web

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.numbers.windows import TopicWindow
from broker.security.audit import AuditTrail
from broker.security.authentication.authenticator import Authenticator
from broker.security.authorization.authorizer import Authorizer
from broker.service.lifecycle.deletion.deletions import Deletions
from broker.service.lifecycle.deletion.last_audit import LastAudit
from broker.service.lifecycle.health import HealthProbe
from broker.service.lifecycle.partitioned_topics import PartitionedTopics
from broker.service.namespaces.clusters import Clusters
from broker.service.namespaces.namespaces import Namespaces
from broker.service.topics.topic_ownership import Addresses
from broker.service.topics.topic_registry import TopicRegistry
from broker.service.transactions.coordinators import Coordinators
from entry_cache.compose import ComposedCache
from foundation.settings.settings import Note, Settings


class DynamicSettingsView(Protocol):
    """Changes of settings at run time; they raise the errors of the settings room."""

    @property
    def names(self) -> Sequence[str]:
        """The keys that may be set."""
        ...

    @property
    def texts(self) -> Mapping[str, str]:
        """The changed keys with their texts as given."""
        ...

    async def read_newest(self) -> None:
        """Applies what is stored now, sooner than a watch tells."""
        ...

    async def set(self, name: str, text: str) -> Sequence[Note]:
        """Changes one key and returns the warnings about it."""
        ...

    async def unset(self, name: str) -> Sequence[Note]:
        """Restores the value of the start."""
        ...


class BrokerView(Protocol):
    """A composed broker as the handlers see it."""

    settings: Settings
    """The settings that hold now."""
    cache: ComposedCache
    """The entry cache."""
    environment: ManagedLedgerEnvironment
    """Metadata store, ledgers and clocks."""
    registry: TopicRegistry
    """All open topics; opens and unloads topics."""
    deletions: Deletions
    """Deletes topics, namespaces and tenants."""
    partitioned: PartitionedTopics
    """Creates, grows and deletes partitioned topics."""
    authorizer: Authorizer
    """Decides about rights."""
    audit: AuditTrail
    """Notes admin writes and refused accesses."""
    namespaces: Namespaces
    """Tenants, namespaces and their policies."""
    last_audit: LastAudit
    """The result of the last audit of leaks."""
    authenticator: Authenticator | None
    """Finds the roles of clients; None without authentication."""
    version: str
    """Magnetar's version."""
    stop_process: Callable[[], None] | None
    """Begins to stop the process; None inside of another program."""

    @property
    def coordinators(self) -> Coordinators | None:
        """The transaction coordinators; None with `transactionCoordinatorEnabled=false`."""
        ...

    @property
    def dynamic_settings(self) -> DynamicSettingsView:
        """Changes settings."""
        ...

    @property
    def addresses(self) -> Addresses:
        """The addresses; complete before the first request."""
        ...


BROKER = web.AppKey("broker", BrokerView)
"""The broker."""
CLUSTERS = web.AppKey("clusters", Clusters)
"""The stored descriptions of clusters."""
RatesOf = Callable[[str], TopicWindow]
"""Returns the rates of a topic by its full name."""
RATES: web.AppKey[RatesOf] = web.AppKey("rates")
"""Returns the rates of a topic."""
HEALTH = web.AppKey("health", HealthProbe)
"""Checks that the broker can store an entry."""


def may_be_newer_in_store(request: web.Request) -> bool:
    """Returns True where another broker may have stored a change that no watch has told of, and the store answers.

    While the store is away a broker answers by what it has.
    """
    ownership = request.app[BROKER].registry.ownership
    return ownership.is_shared and ownership.counts.is_serving
