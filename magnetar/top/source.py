"""Asks a broker, and a bookie with a port of its own, for their metrics and for the answers of the console."""

from __future__ import annotations

import time
from typing import Final

from foundation.value import Json
from magnetar.clients.admin_client import AdminAddress, send
from magnetar.top.console import OVERVIEW, ConsoleAnswers, Look
from magnetar.top.rates import Scrapes, has_bookie, is_magnetar
from magnetar.top.scrape import Scrape, parse

_QUANTILES: Final = {"0.5": "publishP50Ms", "0.99": "publishP99Ms"}
"""Quantiles by their names in the console's answer."""
TOPICS: Final = "topics"
"""The view that every Pulsar has, because it needs metrics alone."""


class Source:
    """The servers of one screen."""

    def __init__(self, broker: AdminAddress, bookie_url: str | None = None) -> None:
        """`broker`: its admin port, with credentials. `bookie_url`: the HTTP port of a bookie, `http://host:8000`.

        Without `bookie_url` a bookie's series are looked for among the broker's.
        """
        self._broker = broker
        self._bookie_url = bookie_url
        self._console = ConsoleAnswers(broker)

    def read(self, topic: str = "", view: str = TOPICS) -> Scrapes:
        """Returns a reading, with the subscriptions of `topic` and the answer for `view`.

        Blocks while the servers answer. Raises CommandError when one does not answer `/metrics`.
        """
        at_ns = time.monotonic_ns()
        # With a slash at the end, because Apache's broker answers the path without it by a redirection.
        broker = parse(send(self._broker, "GET", "/metrics/").text, topic)
        bookie = broker
        if self._bookie_url is not None:
            # Without the credentials, which are the broker's.
            address = AdminAddress(self._bookie_url.rstrip("/"), timeout_s=self._broker.timeout_s)
            bookie = parse(send(address, "GET", "/metrics").text)
        bookies = self._bookies(broker, bookie)
        return Scrapes(at_ns, broker, bookie, bookies, self._look(broker, view), self._publish_ms(broker))

    def _bookies(self, broker: Scrape, bookie: Scrape) -> list[Json]:
        """Returns the bookies that the broker knows; none for a role that may not see them."""
        if has_bookie(bookie) or not is_magnetar(broker):
            return []
        answer = self._console.look("bookies").answer
        return [] if answer is None else answer.list("bookies")

    def _publish_ms(self, broker: Scrape) -> dict[str, float] | None:
        """Returns the latencies that the console shows; None where there is no console for this role."""
        answer = self._console.look(OVERVIEW).answer if is_magnetar(broker) else None
        if answer is None:
            return None
        found = {quantile: answer.value.get(name) for quantile, name in _QUANTILES.items()}
        return {quantile: value for quantile, value in found.items() if isinstance(value, float)}

    def _look(self, broker: Scrape, view: str) -> Look | None:
        if view == TOPICS:
            return None
        if not is_magnetar(broker):
            return Look(None, "Only a broker of Magnetar has this view: 1 shows the topics")
        return self._console.look(view)
