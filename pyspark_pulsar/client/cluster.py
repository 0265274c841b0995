"""A Pulsar cluster as its clients see it: who serves a topic, how many partitions it has, what its schema is.

Holds one connection per broker and opens them as needed. Many questions of one kind go out together.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from protocol import requests
from protocol.pulsar_api_pb2 import BaseCommand, CommandLookupTopicResponse, Schema
from pyspark_pulsar.client.connection import Connection, Endpoint, Messages, Security
from pyspark_pulsar.cutting.entry_table import EntryTable, cut_entries
from pyspark_pulsar.errors import BrokerLost, BrokerRefused, OptionError
from pyspark_pulsar.planning.position import EARLIEST, Position

Answer = TypeVar("Answer")
log = logging.getLogger("pyspark_pulsar")

LATEST_ENTRY = (2**63 - 1, 2**63 - 1)
REDIRECTS_MAX = 20
_PAUSE_S = 0.1
_PAUSE_MAX_S = 2.0
TRY_AGAIN = frozenset({"ServiceNotReady", "MetadataError", "TooManyRequests"})
"""Errors that pass: the topic is being loaded or moved."""

NOT_FOUND = frozenset({"TopicNotFound", "SubscriptionNotFound"})


class ClusterSettings(NamedTuple):
    service_url: str
    security: Security
    timeout_s: float
    """For each answer, and for how long a lost broker is tried again."""


class FirstEntry(NamedTuple):
    ledger: int
    entry: int
    messages: int
    payload_bytes: int


class SchemaVersions:
    """Definitions by topic and version, each asked for once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[str, int], str] = {}

    def definition(self, topic: str, version: int) -> str:
        """BrokerRefused where there is none."""
        key = (topic, version)
        if key not in self._known:
            found = self._cluster.schemas([(topic, version.to_bytes(8, "big"))])[0]
            if found is None:
                doing = f"asking for version {version} of the schema of {topic}"
                raise BrokerRefused(doing, "TopicNotFound", "there is none")
            self._known[key] = found.schema.schema_data.decode()
        return self._known[key]


class TopicSchema(NamedTuple):
    schema: Schema
    version: bytes


def endpoints(service_url: str) -> list[Endpoint]:
    """All hosts of `pulsar://host:port,host:port`; OptionError where it is no such address."""
    parts = urlsplit(service_url)
    if parts.scheme not in ("pulsar", "pulsar+ssl") or not parts.netloc:
        raise OptionError(
            f"service.url is {service_url!r}: pulsar://host:port or pulsar+ssl://host:port is expected"
        )
    tls = parts.scheme == "pulsar+ssl"
    found = []
    for part in parts.netloc.split(","):
        host, colon, port = part.rpartition(":")
        if not colon:
            host, port = part, "6651" if tls else "6650"
        if not port.isdigit() or not host:
            raise OptionError(f"service.url is {service_url!r}: {part!r} is no host:port")
        found.append(Endpoint(host.strip("[]"), int(port), tls))
    return found


class Cluster:
    """Not thread-safe; a process that forks must open its own."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._service = endpoints(settings.service_url)
        self._connections: dict[Endpoint, Connection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Connections

    def connection(self, endpoint: Endpoint) -> Connection:
        found = self._connections.get(endpoint)
        if found is None:
            found = Connection(endpoint, self.settings.security, self.settings.timeout_s)
            self._connections[endpoint] = found
        return found

    def any_connection(self) -> Connection:
        """To the first host of the service URL that answers; tried again until the time is up."""
        deadline = time.monotonic() + self.settings.timeout_s
        pause = _PAUSE_S
        while True:
            for endpoint in self._service:
                try:
                    return self.connection(endpoint)
                except BrokerLost as error:
                    last = error
            if time.monotonic() + pause > deadline:
                raise BrokerLost(
                    f"no broker of {self.settings.service_url} could be reached "
                    f"in {self.settings.timeout_s:g} s: {last}"
                )
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX_S)

    def drop(self, connection: Connection) -> None:
        """After a BrokerLost: the next request opens a new connection."""
        connection.close()
        self._connections = {key: one for key, one in self._connections.items() if one is not connection}

    def forget_lost(self) -> None:
        """Close all connections: after one was lost, what the others say may be old too."""
        self.close()

    def patiently(self, work: Callable[[], Answer]) -> Answer:
        """Do it again if a broker is lost or not ready, until the time is up. It must be harmless to repeat."""
        deadline = time.monotonic() + self.settings.timeout_s
        while True:
            try:
                return work()
            except (BrokerLost, BrokerRefused) as error:
                if isinstance(error, BrokerRefused) and error.code not in TRY_AGAIN:
                    raise
                if time.monotonic() > deadline:
                    raise
                log.warning("%s; trying again", error)
                self.forget_lost()
                time.sleep(_PAUSE_S)

    # Questions

    def owners(self, topics: Sequence[str]) -> list[Endpoint]:
        """Where each topic is served."""
        found: dict[str, Endpoint] = {}
        asked: dict[tuple[Endpoint | None, bool], list[str]] = {(None, False): list(topics)}
        for _ in range(REDIRECTS_MAX):
            redirected: dict[tuple[Endpoint | None, bool], list[str]] = {}
            for (where, authoritative), names in asked.items():
                connection = self.any_connection() if where is None else self.connection(where)
                answers = connection.ask_all(
                    (
                        request_id,
                        requests.lookup(request_id, name, authoritative=authoritative),
                        f"looking up {name}",
                    )
                    for name in names
                    for request_id in (connection.next_id(),)
                )
                for name, answer in zip(names, answers, strict=True):
                    endpoint, follow, final = self._read_lookup(answer)
                    if follow:
                        redirected.setdefault((endpoint, final), []).append(name)
                    else:
                        found[name] = endpoint
            if not redirected:
                return [found[name] for name in topics]
            asked = redirected
        raise BrokerRefused(
            f"looking up {topics[0]}", "TooManyRedirects", f"more than {REDIRECTS_MAX} in a row"
        )

    def _read_lookup(self, answer: BaseCommand) -> tuple[Endpoint, bool, bool]:
        reply = answer.lookupTopicResponse
        tls = self._service[0].tls
        url = reply.brokerServiceUrlTls if tls else reply.brokerServiceUrl
        endpoint = endpoints(url)[0]
        follow = reply.response == CommandLookupTopicResponse.Redirect
        if reply.proxy_through_service_url and not follow:
            service = self.any_connection().endpoint
            if (service.host, service.port) != (endpoint.host, endpoint.port):
                endpoint = service._replace(behind_proxy=f"{endpoint.host}:{endpoint.port}")
        return endpoint, follow, reply.authoritative

    def by_owner(self, topics: Sequence[str]) -> dict[Endpoint, list[str]]:
        found: dict[Endpoint, list[str]] = {}
        for topic, owner in zip(topics, self.owners(topics) if topics else [], strict=True):
            found.setdefault(owner, []).append(topic)
        return found

    def new_connection(self, endpoint: Endpoint) -> Connection:
        """One of the caller's own, to be closed by it."""
        return Connection(endpoint, self.settings.security, self.settings.timeout_s)

    def first_entry(self, topic: str, start: tuple[int, int], subscription: str) -> FirstEntry | None:
        """The first entry at or behind `start` (ledger, entry), None where none comes within a second."""
        return self.first_entries([(topic, start, 0)], subscription)[0]

    def first_entries(
        self, wanted: Sequence[tuple[str, tuple[int, int], int]], subscription: str
    ) -> list[FirstEntry | None]:
        """For each (topic, start, seconds to go back): the first entry that a reader would be sent."""
        owners = self.owners([topic for topic, _, _ in wanted])
        found: list[FirstEntry | None] = [None] * len(wanted)
        for owner in dict.fromkeys(owners):
            rows = [row for row, one in enumerate(owners) if one == owner]
            # Its own connection: what is sent ahead is thrown away with it, and nobody else's messages are taken.
            connection = self.new_connection(owner)
            try:
                for row, entry in zip(
                    rows, _peek(connection, [wanted[row] for row in rows], subscription), strict=True
                ):
                    found[row] = entry
            finally:
                connection.close()
        return found

    def run_before(
        self, topic: str, last: tuple[int, int], count: int, subscription: str
    ) -> Iterator[tuple[Messages, EntryTable]]:
        """Up to `count` entries before `last` (ledger, entry), of the same ledger."""
        ledger, entry = last
        first = max(0, entry - count)
        connection = self.new_connection(self.owners([topic])[0])
        try:
            (consumer_id,) = open_readers(connection, [(topic, (ledger, first), 0)], subscription)
            connection.send(requests.flow(consumer_id, count))
            reached = (ledger, first - 1)
            while reached < (ledger, entry - 1) and connection.poll(PEEK_QUIET_S):
                if connection.message_bytes:
                    messages = connection.take_messages()
                    entries = cut_entries(messages)
                    reached = int(entries.ledger_ids[-1]), int(entries.entry_ids[-1])
                    yield messages, entries
        finally:
            connection.close()

    def last_entries(self, topics: Sequence[str], subscription: str) -> list[Position]:
        """The newest message's place in each topic, `Position(-1, -1)` or entry -1 where there is none."""
        owners = self.owners(topics)
        found: list[Position] = [EARLIEST] * len(topics)
        for owner in dict.fromkeys(owners):
            rows = [row for row, one in enumerate(owners) if one == owner]
            connection = self.new_connection(owner)
            try:
                consumers = open_readers(
                    connection, [(topics[row], LATEST_ENTRY, 0) for row in rows], subscription
                )
                for row, position in zip(rows, ask_last(connection, consumers), strict=True):
                    found[row] = position
            finally:
                connection.close()
        return found

    def partitions(self, topics: Sequence[str], *, create: bool = False) -> list[int]:
        """The number of partitions of each topic, 0 where it is not partitioned."""
        connection = self.any_connection()
        answers = connection.ask_all(
            (
                request_id,
                requests.partitions(request_id, topic, create=create),
                f"asking for the partitions of {topic}",
            )
            for topic in topics
            for request_id in (connection.next_id(),)
        )
        return [answer.partitionMetadataResponse.partitions for answer in answers]

    def topics_of(self, namespace: str) -> list[str]:
        connection = self.any_connection()
        request_id = connection.next_id()
        frame = requests.topics_of_namespace(request_id, namespace)
        answer = connection.ask(request_id, frame, f"listing the topics of {namespace}")
        return list(answer.getTopicsOfNamespaceResponse.topics)

    def schemas(self, wanted: Iterable[tuple[str, bytes | None]]) -> list[TopicSchema | None]:
        """The schema of each (topic, version), None where the topic has none; version None is the newest."""
        connection = self.any_connection()
        answers = connection.try_all(
            (request_id, requests.schema(request_id, topic, version), f"asking for the schema of {topic}")
            for topic, version in wanted
            for request_id in (connection.next_id(),)
        )
        found: list[TopicSchema | None] = []
        for answer, error in answers:
            if error is not None and error.code not in NOT_FOUND:
                raise error
            reply = answer.getSchemaResponse
            found.append(None if error is not None else TopicSchema(reply.schema, reply.schema_version))
        return found


PEEK_QUIET_S = 1.0
"""A broker that has something to send sends it sooner."""


def open_readers(
    connection: Connection, wanted: Sequence[tuple[str, tuple[int, int], int]], subscription: str
) -> list[int]:
    """Subscribe a reader to each (topic, start, seconds to go back); answers their consumer ids. BrokerRefused."""
    consumers: list[int] = []
    asked = []
    for topic, start, rollback_s in wanted:
        request_id, consumer_id = connection.next_id(), connection.next_id()
        consumers.append(consumer_id)
        name = unused_name(f"{subscription}-look")
        frame = requests.subscribe_reader(request_id, consumer_id, topic, name, start, rollback_s=rollback_s)
        asked.append((request_id, frame, f"reading {topic}"))
    connection.ask_all(asked)
    return consumers


def unused_name(prefix: str) -> str:
    """For a subscription of a moment: one of the same name may still be on its way out on the broker."""
    return f"{prefix}-{os.urandom(4).hex()}"


def ask_last(connection: Connection, consumers: Sequence[int]) -> list[Position]:
    answers = connection.ask_all(
        (request_id, requests.last_message_id(request_id, consumer_id), "asking for the end of a topic")
        for consumer_id in consumers
        for request_id in (connection.next_id(),)
    )
    found = (answer.getLastMessageIdResponse.last_message_id for answer in answers)
    return [Position(signed(last.ledgerId), signed(last.entryId)) for last in found]


def signed(number: int) -> int:
    """Ids are int64 to Pulsar and uint64 on the wire."""
    return number - (1 << 64) if number >> 63 else number


def _peek(
    connection: Connection, wanted: Sequence[tuple[str, tuple[int, int], int]], subscription: str
) -> list[FirstEntry | None]:
    consumers = {number: row for row, number in enumerate(open_readers(connection, wanted, subscription))}
    connection.send(b"".join(requests.flow(consumer_id, 1) for consumer_id in consumers))
    found: list[FirstEntry | None] = [None] * len(wanted)
    missing = set(consumers)
    deadline = time.monotonic() + PEEK_QUIET_S
    while missing and time.monotonic() < deadline:
        if not connection.poll(max(deadline - time.monotonic(), 0.001)):
            break
        if not connection.message_bytes:
            continue
        deadline = time.monotonic() + PEEK_QUIET_S
        entries = cut_entries(connection.take_messages())
        counts = entries.message_counts()
        sizes = entries.payload_ends - entries.payload_starts
        for at, consumer_id in enumerate(entries.consumer_ids.tolist()):
            row = consumers[consumer_id]
            if found[row] is None:
                position = int(entries.ledger_ids[at]), int(entries.entry_ids[at])
                found[row] = FirstEntry(*position, int(counts[at]), int(sizes[at]))
                missing.discard(consumer_id)
    return found


@contextlib.contextmanager
def open_cluster(settings: ClusterSettings) -> Iterator[Cluster]:
    cluster = Cluster(settings)
    try:
        yield cluster
    finally:
        cluster.close()
