"""PulsarUnderTest: the methods by which a test uses a broker, ours or any other Pulsar."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from urllib.parse import quote

from magnetar.kit.controls import ask


class PulsarUnderTest(ABC):
    """Names for topics, namespaces of their own, and requests to the admin API."""

    _token: str | None = None

    @property
    @abstractmethod
    def pulsar_url(self) -> str:
        """`pulsar://host:port` for clients."""

    @property
    @abstractmethod
    def admin_url(self) -> str:
        """`http://host:port` of the admin API."""

    def topic(self, name: str = "topic", namespace: str = "public/default") -> str:
        """Returns the full name of a topic that does not exist yet."""
        return f"persistent://{namespace}/{name}-{uuid.uuid4().hex[:12]}"

    def namespace(self, name: str = "test", tenant: str = "public") -> str:
        """Creates a namespace with a name of its own and returns `tenant/name-…`."""
        full = f"{tenant}/{name}-{uuid.uuid4().hex[:12]}"
        self.ask("PUT", f"/admin/v2/namespaces/{full}")
        return full

    def unload(self, topic: str) -> None:
        """Closes a topic now, by its full name; clients look it up and open it again. KitError if it does not exist."""
        domain, _, name = topic.partition("://")
        tenant, namespace, local = name.split("/", 2)
        self.ask("PUT", f"/admin/v2/{domain}/{tenant}/{namespace}/{quote(local, '')}/unload")

    def end_faults(self) -> list[str]:
        """Takes all faults back and returns those that have not happened; none where faults cannot be set."""
        return []

    def refused_schemas(self) -> int:
        """Returns how many schemas of clients were refused as incompatible; 0 of a Pulsar that does not count them."""
        return 0

    def ask(self, method: str, path: str, body: object = None) -> object:
        """Sends a request to the admin API and returns the JSON of its answer. KitError carries Pulsar's reason."""
        return ask(self.admin_url, method, path, body, self._token)
