"""Asks a broker, and a bookie with a port of its own, for their metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass

from magnetar.clients.admin_client import AdminAddress, send
from magnetar.top.rates import Reading
from magnetar.top.scrape import parse


@dataclass(frozen=True, slots=True)
class Source:
    """The addresses of one screen."""

    broker: AdminAddress
    """The broker's admin port, with credentials."""
    bookie_url: str | None = None
    """The HTTP port of a bookie, `http://host:8000`; None to look for a bookie's series among the broker's."""

    def read(self, topic: str = "") -> Reading:
        """Returns a reading, with the subscriptions of `topic`. Blocks while the servers answer. Raises CommandError."""
        at_ns = time.monotonic_ns()
        # With a slash at the end, because Apache's broker answers the path without it by a redirection.
        broker = parse(send(self.broker, "GET", "/metrics/").text, topic)
        if self.bookie_url is None:
            return Reading(at_ns, broker, broker)
        # Without the credentials, which are the broker's.
        bookie = AdminAddress(self.bookie_url.rstrip("/"), timeout_s=self.broker.timeout_s)
        return Reading(at_ns, broker, parse(send(bookie, "GET", "/metrics").text))
