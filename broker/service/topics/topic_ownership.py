"""TopicOwnership: the one place that says which broker serves a topic.

Two kinds of callers use it: lookups of both edges (`broker/net/lookup_handlers.py`, `broker/admin/topics/lookup.py`)
return the owner's addresses to clients, and `TopicRegistry` opens a topic only on the broker that owns it. With several
brokers it is a `ClusterOwnership` (`broker/cluster`), which asks the metadata store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from bookkeeper.metadata.documents import Beside
from bookkeeper.metadata.metadata_store import Lease
from broker.service.successor import ServiceUrls, Successor
from foundation.model.topic_name import TopicName
from foundation.settings.settings import Settings
from foundation.value import Json, Value


class Listener(NamedTuple):
    """The addresses of one listener of a broker."""

    url: str = ""
    """`pulsar://host:port`; empty without one."""
    url_tls: str = ""
    """`pulsar+ssl://host:port`; empty without one."""


class Addresses(Value):
    """The addresses of a broker for its clients; empty for a port that is not opened."""

    service_url: str = ""
    """`pulsar://host:port` of the data port."""
    admin_url: str = ""
    """`http://host:port` of the admin API and of /metrics."""
    service_url_tls: str = ""
    """`pulsar+ssl://host:port` of the data port with TLS."""
    admin_url_tls: str = ""
    """`https://host:port` of the admin API and of /metrics with TLS."""
    listeners: Mapping[str, Listener] = field(default_factory=dict)
    """Further URLs of the data ports by listener name (`advertisedListeners`)."""

    @property
    def service_urls(self) -> ServiceUrls:
        """The URLs of the data ports."""
        return ServiceUrls(self.service_url, self.service_url_tls)

    @property
    def has_further_urls(self) -> bool:
        """True where a listener has other URLs than the data ports: lookups tell these to clients that name it."""
        own = ("", self.service_url, self.service_url_tls)
        return any(url not in own for listener in self.listeners.values() for url in listener)

    @property
    def broker_id(self) -> str:
        """The broker's name in Pulsar: `host:port` of its admin port, the one with TLS where no other is open."""
        return urlsplit(self.admin_url or self.admin_url_tls).netloc

    @property
    def cluster_data(self) -> dict[str, str]:
        """Their members in the description of a cluster. Pulsar's name: ClusterData."""
        urls = {
            "serviceUrl": self.admin_url,
            "serviceUrlTls": self.admin_url_tls,
            "brokerServiceUrl": self.service_url,
            "brokerServiceUrlTls": self.service_url_tls,
        }
        return {member: url for member, url in urls.items() if url}

    def listener(self, name: str) -> Listener | None:
        """Returns the URLs for clients that name this listener, None for an unknown name; "" = the broker's own."""
        return self.listeners.get(name) if name else Listener(self.service_url, self.service_url_tls)


def configured_broker_id(settings: Settings) -> str:
    """Returns a broker's name as it is configured: a port of 0 becomes another one at each start."""
    port = settings.optional_int("webServicePort")
    if port is None:
        port = settings.optional_int("webServicePortTls")
    return f"{settings.str('advertisedAddress')}:{port}"


class Owner(NamedTuple):
    """The answer to a lookup."""

    addresses: Addresses
    """Of the owner, or of the broker to ask next."""
    is_redirect: bool = False
    """True where the client shall ask that broker."""
    authoritative: bool = False
    """Of a redirect: that broker shall take the bundle."""


class MoveKind(StrEnum):
    """The kinds of changes of a bundle at a broker."""

    TAKEN = "taken"
    """The broker owns the bundle from then on."""
    GIVEN_UP = "given up"
    """The broker owns the bundle no longer, by its own decision."""
    LOST = "lost"
    """Another broker took the bundle after the end of its session."""
    DECIDED = "decided"
    """The broker, as the leader, has decided that another one shall have the bundle, or that it is divided."""


class Move(NamedTuple):
    """A change of the owner of a bundle, as the broker that it happened to has noted it."""

    at_ms: int
    """By the clock of that broker."""
    bundle: str
    """`tenant/namespace/range`."""
    broker: str
    """Its name."""
    kind: MoveKind
    """The change."""
    why: str
    """The reason, a sentence for people."""


class OwnershipCounts(NamedTuple):
    """Numbers of a broker's place in its cluster."""

    brokers: int = 1
    """Brokers that are there, as this one has read last."""
    has_leader: bool = True
    """A broker that is there leads."""
    leases: int = 0
    """Bundles that this broker owns; 0 where it owns all topics without leases."""
    is_serving: bool = True
    """New topics open: the store answers, and every lease has been taken in the present session."""
    sessions_ended: int = 0
    """Sessions that have ended since the start."""
    waited_for: int = 0
    """Bundles of dead owners, for whose end of session lookups at this broker wait."""
    moves: Mapping[MoveKind, int] = MappingProxyType({})
    """Moves since the start, by kind."""
    shed_brokers: int = 0
    """Brokers from which this one has moved bundles as the leader, once for each round."""
    shed_bundles: int = 0
    """Bundles that this one has moved as the leader, for balance."""
    divided_bundles: int = 0
    """Bundles that this one has divided as the leader, because they had too much of something."""


class BrokerSeen(NamedTuple):
    """A broker of the cluster."""

    addresses: Addresses
    """For its clients."""
    bundles: Sequence[str]
    """Those that it owned at its last load report, by name; none where it owns all topics without leases."""
    used: float = 0.0
    """The share of its most used resource at that report, by the weights of the load balance."""
    rate: float = 0.0
    """Messages per second of its bundles, in and out, at that report."""
    age_ms: int = 0
    """How long ago that was, by the clocks of both; 0 for the broker that tells, which measures every few seconds."""


class ClusterSeen(NamedTuple):
    """The cluster as one of its brokers sees it."""

    brokers: Mapping[str, BrokerSeen]
    """By name, this broker among them."""
    leader: str | None
    """The name of the broker that chooses owners."""
    moves: Sequence[Move]
    """The last moves of all brokers, newest first."""


class TopicOwnership:
    """Assigns topics to brokers: the one broker of a store of its own owns every topic."""

    is_shared: bool = False
    """True where other brokers may own topics."""

    def __init__(self, owner: Addresses | None = None) -> None:
        self.owner = owner or Addresses()
        """This broker's addresses. Set before the first client connects: the ports are known once they are open."""
        self.close_bundle: Callable[[str, Successor | None], Awaitable[None]] = _nothing_is_open
        """Closes the topics of a bundle, which a successor has next; set once there is a registry of topics."""
        self.parts: Callable[[], Collection[str]] = _all_together
        """Returns the parts of the topics that this broker owns now, by the names of `bundle_of`."""
        self.delete_elsewhere: Callable[[TopicName], Awaitable[bool]] = _nobody_else_owns
        """Has another broker that owns the topic delete it with its clients; False where this broker has to."""
        self.load_report: Callable[[], Awaitable[dict[str, Json]]] = _nothing_is_measured
        """Returns the load report of this broker; set with the admin port."""

    @property
    def brokers(self) -> Mapping[str, Addresses]:
        """The brokers that are there, by name, this one among them."""
        return {self.owner.broker_id: self.owner}

    @property
    def leader(self) -> str | None:
        """The name of the broker that chooses owners; None while nobody does."""
        return self.owner.broker_id

    @property
    def counts(self) -> OwnershipCounts:
        """The numbers of this broker."""
        return OwnershipCounts()

    async def seen(self) -> ClusterSeen:
        """Returns all brokers with their bundles, read anew. Raises MetadataError."""
        return ClusterSeen({self.owner.broker_id: BrokerSeen(self.owner, ())}, self.leader, ())

    async def open(self, owner: Addresses) -> None:
        """Sets this broker's addresses."""
        self.owner = owner

    def bundle_of(self, name: TopicName) -> str:
        """Returns the part of the topics that has one owner: all of them."""
        return ""

    async def owner_of(self, name: TopicName, *, authoritative: bool = False) -> Owner:
        """Returns the broker that serves the topic, which need not exist; `authoritative` as the lookup says it."""
        return await self.owner_of_bundle(self.bundle_of(name), authoritative=authoritative)

    async def owner_of_bundle(self, bundle: str, *, authoritative: bool = False) -> Owner:
        """Returns the broker that serves the topics of a bundle, `tenant/namespace/range`."""
        return Owner(self.owner)

    async def located(self, name: TopicName) -> Addresses:
        """Returns the topic's owner as a client finds it, from broker to broker; the leader chooses one where none is.

        Raises ServiceNotReady and MetadataError.
        """
        return self.owner

    async def located_all(self, names: Iterable[TopicName]) -> dict[TopicName, Addresses]:
        """Returns the owner of each topic in the order of the names, as `located`; each bundle is looked up once."""
        return dict.fromkeys(names, self.owner)

    async def check_owned(self, name: TopicName) -> Lease | None:
        """Raises ServiceNotReady unless this broker may open the topic; the client then looks it up again.

        Returns the condition of its fencing and of the first write of its list; None = without one.
        """
        return None

    async def unload(self, bundle: str, destination: str = "") -> None:
        """Closes the topics of a bundle that this broker owns, and gives it up to the broker of this name, or to any."""
        await self.close_bundle(bundle, None)

    async def split(
        self, bundle: str, parts: Sequence[str], store: Callable[[Beside], Awaitable[None]]
    ) -> None:
        """Owns the parts of a bundle in its place; `store` stores the division, on a condition."""
        await store(tuple)

    async def leave(self) -> None:
        """Gives all topics up, before the broker stops."""

    async def at_end(self) -> None:
        """Ends connections to other brokers; nothing is asked of them any more."""


def _all_together() -> Collection[str]:
    """Stands for `parts` at a broker that owns every topic."""
    return ("",)


async def _nobody_else_owns(_name: TopicName) -> bool:
    """Stands for `delete_elsewhere` at a broker that owns every topic."""
    return False


async def _nothing_is_measured() -> dict[str, Json]:
    """Stands for `load_report` before there is one."""
    return {}


async def _nothing_is_open(_bundle: str, _successor: Successor | None) -> None:
    """Stands for `close_bundle` before there is a registry."""
