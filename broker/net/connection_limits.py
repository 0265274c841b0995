"""Limits of connections: how many there may be, from one address and in all, and what one of them may have open.

Pulsar's limits are keys. Those of one connection are ours and constant: Pulsar has none, and its clients stay far below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from broker.net.settings import NetSettings
from foundation.model.errors import MetadataError, NotAllowed
from protocol.pulsar_api_pb2 import KeyValue

PRODUCERS_MAX: Final = 50_000
"""Producers of one connection. A client of a topic with 10,000 partitions has 10,000 of them on one."""
CONSUMERS_MAX: Final = 50_000
"""Consumers of one connection."""
WATCHERS_MAX: Final = 100
"""Watched topic lists of one connection. Each created topic costs every watcher a hash over its whole list."""
SHARES_MAX: Final = 1_000
"""Consumers of Pulsar 5.0 of one connection that share partitions; each one that comes or goes is told to the others."""
CONNECT_FRAME_BYTES_MAX: Final = 192 * 1024
"""Longest frame before CONNECT is answered: a token of the client, one of a client behind a proxy, and 64 KiB more.

With the limit of messages, a few peers without any credentials would take the memory that all connections receive into."""
PRODUCER_METADATA_CHARACTERS_MAX: Final = 64 * 1024
"""Keys and values of one producer's metadata. For consumers `maxConsumerMetadataSize` is the limit."""


class ConnectionLimits:
    """Counts connections by address, and says which new one is one too many."""

    def __init__(self) -> None:
        self._by_host: Counter[str] = Counter()
        # Those whose TLS handshake has not ended.
        self._handshakes: Counter[str] = Counter()

    def admit(self, host: str, connections: int, settings: NetSettings) -> str | None:
        """Counts a new connection; returns Pulsar's reason against it when it is beyond a limit.

        `connections` are open already. A connection that was admitted must `leave`.
        """
        reason = _reason_against(host, connections, self._by_host[host], settings)
        if reason is None:
            self._by_host[host] += 1
        return reason

    def leave(self, host: str) -> None:
        """Subtracts a closed connection."""
        _subtract(self._by_host, host)

    def begin_handshake(self, host: str, connections: int, settings: NetSettings) -> str | None:
        """Counts a TLS handshake; arguments and result as for `admit`, and it must `end_handshake`.

        Handshakes count together with connections, so peers that stall in one cannot be more than the limit. A
        connection after its handshake is counted by `admit`, which ignores handshakes: it would find its own.
        """
        at_host = self._by_host[host] + self._handshakes[host]
        reason = _reason_against(host, connections + self._handshakes.total(), at_host, settings)
        if reason is None:
            self._handshakes[host] += 1
        return reason

    def end_handshake(self, host: str) -> None:
        """Subtracts a handshake that has ended or failed."""
        _subtract(self._handshakes, host)


def _reason_against(host: str, connections: int, at_host: int, settings: NetSettings) -> str | None:
    if 0 < settings.connections_max <= connections:
        return "Reached the maximum number of connections"
    if 0 < settings.connections_max_per_host <= at_host:
        return f"Reached the maximum number of connections on address {host}"
    return None


def _subtract(counter: Counter[str], host: str) -> None:
    counter[host] -= 1
    # Addresses without a connection must not pile up.
    if counter[host] <= 0:
        del counter[host]


def check_count(open_now: int, most: int, what: str) -> None:
    """Raises NotAllowed when the connection has `most` of them."""
    if open_now >= most:
        raise NotAllowed(
            f"This connection has {open_now} {what}, the most that one may have; open another one"
        )


def check_metadata(pairs: Iterable[KeyValue], most: int) -> None:
    """Raises MetadataError for keys and values of more than `most` characters together, in Pulsar's words."""
    if sum(len(pair.key) + len(pair.value) for pair in pairs) > most:
        raise MetadataError(f"metadata has a max size of {most} bytes")
