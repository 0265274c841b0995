"""A Pulsar cluster as its clients see it: the owner of a topic, its partitions, its schema, its first and last entries.

Holds one connection per broker and opens them as needed. Requests of one kind are sent together, because a query may
read hundreds of thousands of topics and one round trip each would take minutes.
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
from pyspark_pulsar.client.connection import BrokerConnection, Endpoint
from pyspark_pulsar.client.security import Security
from pyspark_pulsar.cutting.entry_table import EntryTable, cut_entries
from pyspark_pulsar.cutting.messages import Messages
from pyspark_pulsar.errors import BrokerLost, BrokerRefused, OptionError
from pyspark_pulsar.position import MessagePosition

AnswerT = TypeVar("AnswerT")
log = logging.getLogger("pyspark_pulsar")

_LATEST_ENTRY = (2**63 - 1, 2**63 - 1)
"""(ledger, entry) of MessageId.latest: a reader that starts there is sent new messages only."""
_REDIRECTS_MAX = 20
_PAUSE_S = 0.1
_PAUSE_MAX_S = 2.0
TRY_AGAIN = frozenset({"ServiceNotReady", "MetadataError", "TooManyRequests"})
"""Codes of refusals that pass by themselves: the topic is being loaded or moved."""

NOT_FOUND = frozenset({"TopicNotFound", "SubscriptionNotFound"})
"""Codes of refusals for a topic that does not exist."""


class ClusterSettings(NamedTuple):
    """How to reach a cluster. Pickled to the tasks."""

    service_url: str
    """`pulsar://` or `pulsar+ssl://` and one or several `host:port`."""
    security: Security
    """For every connection to the cluster."""
    timeout_s: float
    """Limit for each answer, and for the time that a lost broker is tried again."""


class ReaderStart(NamedTuple):
    """One topic and the entry from which a reader of it is to start."""

    topic: str
    """Full name of a topic or partition."""
    entry: tuple[int, int]
    """(ledger, entry), included; (-1, -1) is the begin of the topic."""
    rollback_s: int = 0
    """Above 0 the reader starts with messages published at most so many seconds ago; `entry` is then (-1, -1)."""


class FirstEntry(NamedTuple):
    """The first entry that the broker sent to a reader."""

    ledger: int
    """Ledger id."""
    entry: int
    """Entry id."""
    messages: int
    """Messages in the entry, 1 if it is no batch."""
    payload_bytes: int
    """Length of the payload as stored, compressed or not."""


class SchemaVersions:
    """Schema definitions by topic and version, each requested once. Lives in one task."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[str, int], str] = {}

    def definition(self, topic: str, version: int) -> str:
        """Returns the definition as JSON text. BrokerRefused where the topic has no such version."""
        key = (topic, version)
        if key not in self._known:
            found = self._cluster.schemas([(topic, version.to_bytes(8, "big"))])[0]
            if found is None:
                doing = f"asking for version {version} of the schema of {topic}"
                raise BrokerRefused(doing, "TopicNotFound", "there is none")
            self._known[key] = found.schema.schema_data.decode()
        return self._known[key]


class TopicSchema(NamedTuple):
    """A topic's schema as the broker keeps it."""

    schema: Schema
    """Type, and for records the definition as JSON text."""
    version: bytes
    """Opaque to clients; brokers use 8 bytes, big-endian, counted from 0."""


def endpoints(service_url: str) -> list[Endpoint]:
    """Parses `pulsar://host:port,host:port`. OptionError where it is no such address."""
    if not service_url:
        raise OptionError(
            "the schema of the topic is needed: give service.url, or schemaType and schemaDefinition, or"
            " allowDifferentTopicSchemas=true for values as bytes"
        )
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
    """The brokers of one cluster, with at most one shared connection to each.

    Not thread-safe. A process must open its own: sockets do not survive pickling, and two processes on one socket
    would read each other's answers.
    """

    def __init__(self, settings: ClusterSettings) -> None:
        """Connects to nothing yet. OptionError where the service URL is no address."""
        self.settings = settings
        """As given; the timeout also limits the retries of callers."""
        self._service = endpoints(settings.service_url)
        self._connections: dict[Endpoint, BrokerConnection] = {}

    # Connections

    def close(self) -> None:
        """Closes all shared connections; the next request opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, endpoint: Endpoint) -> BrokerConnection:
        """Returns the shared connection to `endpoint`, opened at the first call. BrokerLost."""
        found = self._connections.get(endpoint)
        if found is None:
            found = BrokerConnection(endpoint, self.settings.security, self.settings.timeout_s)
            self._connections[endpoint] = found
        return found

    def _any_connection(self) -> BrokerConnection:
        """Returns a connection to the first host of the service URL that answers; retries until the timeout."""
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

    def retrying(self, work: Callable[[], AnswerT]) -> AnswerT:
        """Calls `work` again while a broker is lost or not ready, for `timeout_s` at most.

        `work` must be harmless to repeat. All connections are closed before it is repeated: when one broker is lost,
        its topics move, and the others may still answer with the old owner.
        """
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
                self.close()
                time.sleep(_PAUSE_S)

    # Requests

    def owners(self, topics: Sequence[str]) -> list[Endpoint]:
        """Returns the broker that serves each topic. BrokerLost, BrokerRefused."""
        found: dict[str, Endpoint] = {}
        # Lookups are grouped by the broker to ask: a redirect names another broker, and whether it must decide itself.
        pending: dict[tuple[Endpoint | None, bool], list[str]] = {(None, False): list(topics)}
        for _ in range(_REDIRECTS_MAX):
            redirected: dict[tuple[Endpoint | None, bool], list[str]] = {}
            for (broker, authoritative), names in pending.items():
                connection = self._any_connection() if broker is None else self.connection(broker)
                answers = connection.ask_all(
                    connection.request(
                        f"looking up {name}", requests.lookup, name, authoritative=authoritative
                    )
                    for name in names
                )
                for name, answer in zip(names, answers, strict=True):
                    lookup = self._read_lookup(answer)
                    if lookup.is_redirect:
                        redirected.setdefault((lookup.broker, lookup.authoritative), []).append(name)
                    else:
                        found[name] = lookup.broker
            if not redirected:
                return [found[name] for name in topics]
            pending = redirected
        raise BrokerRefused(
            f"looking up {topics[0]}", "TooManyRedirects", f"more than {_REDIRECTS_MAX} in a row"
        )

    def _read_lookup(self, answer: BaseCommand) -> _Lookup:
        reply = answer.lookupTopicResponse
        tls = self._service[0].tls
        url = reply.brokerServiceUrlTls if tls else reply.brokerServiceUrl
        broker = endpoints(url)[0]
        is_redirect = reply.response == CommandLookupTopicResponse.Redirect
        if reply.proxy_through_service_url and not is_redirect:
            # Behind a proxy the broker's own address may not be reachable: connect to the proxy and name the broker.
            service = self._any_connection().endpoint
            if (service.host, service.port) != (broker.host, broker.port):
                broker = service._replace(behind_proxy=f"{broker.host}:{broker.port}")
        return _Lookup(broker, is_redirect, reply.authoritative)

    def by_owner(self, topics: Sequence[str]) -> dict[Endpoint, list[str]]:
        """Groups topics by the broker that serves them."""
        found: dict[Endpoint, list[str]] = {}
        for topic, owner in zip(topics, self.owners(topics) if topics else [], strict=True):
            found.setdefault(owner, []).append(topic)
        return found

    def new_connection(self, endpoint: Endpoint) -> BrokerConnection:
        """Opens a connection that only the caller uses and must close. BrokerLost, BrokerRefused."""
        return BrokerConnection(endpoint, self.settings.security, self.settings.timeout_s)

    def first_entry(self, topic: str, start: tuple[int, int], subscription: str) -> FirstEntry | None:
        """Returns the first entry at or after `start` (ledger, entry); None if there is none: see `_hears`."""
        return self.first_entries([ReaderStart(topic, start)], subscription)[0]

    def first_entries(self, wanted: Sequence[ReaderStart], subscription: str) -> list[FirstEntry | None]:
        """Returns for each start the first entry that a reader is sent; None if there is none: see `_hears`.

        Reads with non-durable subscriptions whose names begin with `subscription`; they vanish with the connection.
        """
        return self.ask_owners(
            [start.topic for start in wanted],
            lambda connection, rows: _peek(connection, [wanted[row] for row in rows], subscription),
        )

    def ask_owners(
        self, topics: Sequence[str], ask: Callable[[BrokerConnection, list[int]], Iterable[AnswerT]]
    ) -> list[AnswerT]:
        """Returns the answer for each topic. `ask` gets one broker's connection, and the rows of its topics.

        The connection serves `ask` alone: on a shared one, the messages of its other consumers would be taken too, and
        closing it is the one way to stop a broker that has more permits than are needed. BrokerLost, BrokerRefused.
        """
        owners = self.owners(topics)
        found: dict[int, AnswerT] = {}
        for owner in dict.fromkeys(owners):
            rows = [row for row, one in enumerate(owners) if one == owner]
            with contextlib.closing(self.new_connection(owner)) as connection:
                found.update(zip(rows, ask(connection, rows), strict=True))
        return [found[row] for row in range(len(topics))]

    def run_before(
        self, topic: str, last: tuple[int, int], count: int, subscription: str
    ) -> Iterator[tuple[Messages, EntryTable]]:
        """Yields up to `count` entries before `last` (ledger, entry), all of its ledger.

        Ends early when the broker has no more of them. Used to find the first chunks of a message.
        """
        ledger, entry = last
        first = max(0, entry - count)
        with contextlib.closing(self.new_connection(self.owners([topic])[0])) as connection:
            (consumer_id,) = open_readers(connection, [ReaderStart(topic, (ledger, first))], subscription)
            connection.send(requests.flow(consumer_id, count))
            reached = (ledger, first - 1)
            while reached < (ledger, entry - 1) and _hears(connection, consumer_id):
                if connection.message_bytes:
                    messages = connection.take_messages()
                    entries = cut_entries(messages)
                    reached = int(entries.ledger_ids[-1]), int(entries.entry_ids[-1])
                    yield messages, entries

    def last_entries(self, topics: Sequence[str], subscription: str) -> list[MessagePosition]:
        """Returns each topic's newest position; its entry is -1 where the topic or its newest ledger is empty."""

        def ask(connection: BrokerConnection, rows: list[int]) -> list[MessagePosition]:
            # GET_LAST_MESSAGE_ID needs a consumer; one at the end of the topic is sent nothing.
            starts = [ReaderStart(topics[row], _LATEST_ENTRY) for row in rows]
            return ask_last(connection, open_readers(connection, starts, subscription))

        return self.ask_owners(topics, ask)

    def partitions(self, topics: Sequence[str], *, create: bool = False) -> list[int]:
        """Returns the number of partitions of each topic, 0 for one that is not partitioned.

        `create` lets the broker create missing topics as its allowAutoTopicCreation settings say. BrokerRefused.
        """
        connection = self._any_connection()
        answers = connection.ask_all(
            connection.request(
                f"asking for the partitions of {topic}", requests.partitions, topic, create=create
            )
            for topic in topics
        )
        return [answer.partitionMetadataResponse.partitions for answer in answers]

    def topics_of(self, namespace: str) -> list[str]:
        """Returns the full names of all persistent topics and partitions of `tenant/namespace`."""
        connection = self._any_connection()
        doing = f"listing the topics of {namespace}"
        answer = connection.ask(connection.request(doing, requests.topics_of_namespace, namespace))
        return list(answer.getTopicsOfNamespaceResponse.topics)

    def schemas(self, wanted: Iterable[tuple[str, bytes | None]]) -> list[TopicSchema | None]:
        """Returns the schema of each (topic, version); None where there is none. Version None is the newest."""
        connection = self._any_connection()
        answers = connection.try_all(
            connection.request(f"asking for the schema of {topic}", requests.schema, topic, version)
            for topic, version in wanted
        )
        found: list[TopicSchema | None] = []
        for answer, error in answers:
            if error is not None and error.code not in NOT_FOUND:
                raise error
            reply = answer.getSchemaResponse
            found.append(None if error is not None else TopicSchema(reply.schema, reply.schema_version))
        return found


PEEK_QUIET_S = 1.0
"""Silence after which a reader counts as having nothing to read, if the broker answers in its midst: see `_hears`."""


class _Lookup(NamedTuple):
    broker: Endpoint
    is_redirect: bool
    """Ask `broker` again; otherwise it serves the topic."""
    authoritative: bool
    """True if the broker named by a redirect must decide by itself."""


def open_readers(connection: BrokerConnection, wanted: Sequence[ReaderStart], subscription: str) -> list[int]:
    """Subscribes a reader at each start; returns their consumer ids. BrokerRefused."""
    consumers = [connection.next_id() for _ in wanted]
    subscribe, prefix = requests.subscribe_reader, f"{subscription}-look"
    connection.ask_all(
        connection.request(
            f"reading {topic}", subscribe, number, topic, unused_name(prefix), start, rollback_s=rollback_s
        )
        for number, (topic, start, rollback_s) in zip(consumers, wanted, strict=True)
    )
    return consumers


def unused_name(prefix: str) -> str:
    """Returns `prefix` with a random tail, for a short-lived subscription.

    With a name that was used before, the broker might still be removing the old subscription and refuse the new one.
    """
    return f"{prefix}-{os.urandom(4).hex()}"


def ask_last(connection: BrokerConnection, consumers: Sequence[int]) -> list[MessagePosition]:
    """Returns the newest position of the topic of each consumer; entry -1 where there is none."""
    answers = connection.ask_all(
        connection.request("asking for the end of a topic", requests.last_message_id, consumer_id)
        for consumer_id in consumers
    )
    found = (answer.getLastMessageIdResponse.last_message_id for answer in answers)
    return [MessagePosition(signed(last.ledgerId), signed(last.entryId)) for last in found]


def signed(number: int) -> int:
    """Converts an id from the wire: Pulsar's ids are int64, the protobuf field is uint64."""
    return number - (1 << 64) if number >> 63 else number


def _peek(
    connection: BrokerConnection, wanted: Sequence[ReaderStart], subscription: str
) -> list[FirstEntry | None]:
    consumers = {number: row for row, number in enumerate(open_readers(connection, wanted, subscription))}
    # One permit brings one entry, with all messages of its batch.
    connection.send(b"".join(requests.flow(consumer_id, 1) for consumer_id in consumers))
    found: list[FirstEntry | None] = [None] * len(wanted)
    missing = set(consumers)
    # For many topics, all entries together may take longer than a second: each that comes begins the wait anew.
    while missing and _hears(connection, next(iter(missing))):
        if not connection.message_bytes:
            continue
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


def _hears(connection: BrokerConnection, consumer_id: int) -> bool:
    """Receives once; returns False when the broker has nothing to send to the connection's consumers.

    A broker may also be silent because it stands still, and then rows would count as absent. So silence is believed when
    the broker has answered a question that was asked during it. Takes PEEK_QUIET_S then. BrokerLost."""
    if connection.message_bytes or connection.poll(PEEK_QUIET_S / 2):
        return True
    ask_last(connection, [consumer_id])
    return connection.message_bytes > 0 or connection.poll(PEEK_QUIET_S / 2)


@contextlib.contextmanager
def open_cluster(settings: ClusterSettings) -> Iterator[Cluster]:
    """Yields a cluster and closes its connections at the end of the block."""
    with contextlib.closing(Cluster(settings)) as cluster:
        yield cluster
