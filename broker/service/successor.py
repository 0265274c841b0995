"""Successor: the broker that has a topic next, of which clients of a topic that moves are told (PIP-307)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class ServiceUrls(NamedTuple):
    """The URLs of a broker's data ports; empty for a port that is not opened."""

    url: str = ""
    """`pulsar://host:port`."""
    url_tls: str = ""
    """`pulsar+ssl://host:port`."""


NOBODY = ServiceUrls()
"""The client looks the topic up."""


class Successor:
    """Clients wait until the next broker is known and has the topic."""

    __slots__ = ("_urls", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[Callable[[ServiceUrls], None]] = []
        self._urls: ServiceUrls | None = None

    @property
    def is_awaited(self) -> bool:
        """True where a client waits."""
        return bool(self._waiting)

    def when_known(self, told: Callable[[ServiceUrls], None]) -> None:
        """Calls `told` with the URLs, once they are known; NOBODY where no broker has taken the topic."""
        if self._urls is None:
            self._waiting.append(told)
        else:
            told(self._urls)

    def known(self, urls: ServiceUrls) -> None:
        """Tells all that wait."""
        self._urls = urls
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            told(urls)


class MayMove(Protocol):
    """A topic, as far as ports of its clients tell where it goes."""

    @property
    def successor(self) -> Successor | None:
        """None while the topic moves nowhere."""
        ...
