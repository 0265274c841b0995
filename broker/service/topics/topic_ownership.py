"""TopicOwnership: the one place that says which broker serves a topic.

Two kinds of callers use it: lookups of both edges (`broker/net/lookup_handlers.py`, `broker/admin/topics/lookup.py`)
return the owner's addresses to clients, and `TopicRegistry` opens a topic only on the broker that owns it. A broker of
a cluster of several implements this Protocol over the metadata store; no caller has to change, because both methods may
wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple, Protocol

from foundation.model.topic_name import TopicName
from foundation.value import Value


class Listener(NamedTuple):
    """The addresses of one listener of a broker."""

    url: str = ""
    """`pulsar://host:port`; empty without one."""
    url_tls: str = ""
    """`pulsar+ssl://host:port`; empty without one."""


class TopicOwner(Value):
    """Addresses of the broker that serves a topic."""

    service_url: str
    """`pulsar://host:port` of the data port; empty without one."""
    admin_url: str
    """`http://host:port` of the admin interface; empty without one."""
    service_url_tls: str = ""
    """`pulsar+ssl://host:port` of the data port with TLS; empty without one."""
    admin_url_tls: str = ""
    """`https://host:port` of the admin interface with TLS; empty without one."""
    listeners: Mapping[str, Listener] = field(default_factory=dict)
    """Further URLs of the data ports by listener name (`advertisedListeners`)."""

    def listener(self, name: str) -> Listener | None:
        """Returns the URLs for clients that name this listener, None for an unknown name; "" = the broker's own."""
        return self.listeners.get(name) if name else Listener(self.service_url, self.service_url_tls)


class TopicOwnership(Protocol):
    """Assigns topics to brokers."""

    async def owner_of(self, name: TopicName) -> TopicOwner:
        """Returns the broker that serves the topic; assigns one if need be.

        The topic need not exist. ServiceNotReady when no broker can be found now.
        """
        ...

    async def check_owned(self, name: TopicName) -> None:
        """Raises ServiceNotReady unless this broker may open the topic; the client then looks it up again."""
        ...


class SingleBroker:
    """Ownership in a cluster of one broker: it owns every topic."""

    def __init__(self, owner: TopicOwner | None = None) -> None:
        self.owner = owner or TopicOwner("", "")
        """This broker's addresses. Set before the first client connects: the ports are known once they are open."""

    async def owner_of(self, name: TopicName) -> TopicOwner:
        """Always this broker."""
        return self.owner

    async def check_owned(self, name: TopicName) -> None:
        """Every topic is owned."""
