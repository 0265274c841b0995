"""TopicOwnership: the one place that says which broker serves a topic.

Two kinds of callers use it: lookups of both edges (`broker/net/lookup_handlers.py`, `broker/admin/topics/lookup.py`)
return the owner's addresses to clients, and `TopicRegistry` opens a topic only on the broker that owns it. With several
brokers it asks the metadata store; no caller has to change, because both methods may wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from foundation.model.topic_name import TopicName
from foundation.value import Value


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

    def listener(self, name: str) -> Listener | None:
        """Returns the URLs for clients that name this listener, None for an unknown name; "" = the broker's own."""
        return self.listeners.get(name) if name else Listener(self.service_url, self.service_url_tls)


class TopicOwnership:
    """Assigns topics to brokers: the one broker of the cluster owns every topic."""

    def __init__(self, owner: Addresses | None = None) -> None:
        self.owner = owner or Addresses()
        """This broker's addresses. Set before the first client connects: the ports are known once they are open."""

    async def owner_of(self, name: TopicName) -> Addresses:
        """Returns the addresses of the broker that serves the topic, which need not exist."""
        return self.owner

    async def check_owned(self, name: TopicName) -> None:
        """Raises ServiceNotReady unless this broker may open the topic; the client then looks it up again."""
