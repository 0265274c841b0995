"""Keys of the broker as a server: addresses, connections, back-pressure, entry metadata, metrics.

Names and defaults are Pulsar's (its configuration class, release 4.2, where 4.0 and 5.0 differ they have
a column); the words are ours. A key that no room of ours reads yet says so (`used=False`).
"""

from __future__ import annotations

from settings.keys import PROFILES, Key, Section

PORT_MAX = 65535
INTERCEPTORS = (
    "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor",
    "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
)
"""The classes of Apache that brokerEntryMetadataInterceptors may name; the files shipped name both."""

MAGNETAR: Section = (
    "Magnetar",
    [
        Key(
            "magnetarProfile",
            "string",
            "4.2",
            "Pulsar release whose defaults hold for every key that is not set, so that dashboards and limits behave as"
            " in that release. Which entries stay cached is decided as in it only with entryCachePolicy=pip430, or"
            " with fifo-ttl for 4.0.",
            choices=PROFILES,
            ours=True,
        ),
        Key(
            "magnetarDataDirectory",
            "string",
            "data",
            "Directory for everything kept on disk: the metadata store and the embedded bookie's files. A"
            " relative path starts at the working directory.",
            ours=True,
        ),
        Key(
            "magnetarInMemory",
            "bool",
            False,
            "Keep nothing on disk: metadata and entries live in memory and are gone at exit. For tests.",
            ours=True,
        ),
        Key(
            "bookieAddress",
            "list",
            ("localhost:3181",),
            "Where entries are stored: `embedded` runs a bookie inside the broker's process, `host:port`"
            " talks BookKeeper's v2 protocol to a bookie elsewhere, and several of them, with commas, are"
            " what ensembles are chosen from; `registered` are those in the ZooKeeper of metadataStoreUrl.",
            standalone=("embedded",),
            ours=True,
        ),
    ],
)

SERVER: Section = (
    "Server",
    [
        Key(
            "clusterName",
            "string",
            "cluster-a",
            "Name of the cluster; the `cluster` label of every metric and the answer of"
            " `/admin/v2/clusters`.",
            standalone="standalone",
        ),
        Key(
            "brokerServicePort",
            "int",
            6650,
            "TCP port of the binary protocol; 0 takes any free port.",
            low=0,
            high=PORT_MAX,
        ),
        Key(
            "webServicePort",
            "int",
            8080,
            "TCP port of the admin API and of `/metrics`; 0 takes any free port.",
            low=0,
            high=PORT_MAX,
        ),
        Key("bindAddress", "string", "0.0.0.0", "Address that both ports listen on."),
        Key(
            "advertisedAddress",
            "string",
            None,
            "Host name or address that clients are told to connect to.",
            standalone="localhost",
            computed="the machine's host name",
        ),
        Key(
            "advertisedListeners",
            "list",
            None,
            "Further addresses by listener name, as `name:pulsar://host:port`; a client that names a"
            " listener in its lookup is sent there.",
        ),
        Key(
            "internalListenerName",
            "string",
            None,
            "Listener of advertisedListeners that is used when a client names none.",
            computed="the first of advertisedListeners",
            used=False,
        ),
        Key(
            "metadataStoreUrl",
            "string",
            None,
            "Where topics, ledger lists and cursor positions are kept: `file:PATH` for the embedded store,"
            " `zk:host:port[,host:port][/chroot]` for ZooKeeper, which bookies and BookKeeper's tools share"
            " (needs `pip install magnetar[zookeeper]`), `memory:NAME` with magnetarInMemory.",
            computed="`file:` and magnetarDataDirectory/metadata.sqlite; memory:local with magnetarInMemory",
        ),
        Key(
            "metadataStoreSessionTimeoutMillis",
            "int",
            30_000,
            "Milliseconds after which ZooKeeper ends the session of a broker that it does not hear, and how"
            " long a start waits for ZooKeeper.",
            low=1000,
        ),
        Key(
            "metadataStoreOperationTimeoutSeconds",
            "int",
            30,
            "Seconds that a read from ZooKeeper may take before the request that needs it fails. A write"
            " waits until ZooKeeper is back.",
            low=1,
        ),
        Key(
            "brokerShutdownTimeoutMs",
            "long",
            60_000,
            "Milliseconds that a clean stop may take to drain and write what is pending before the process"
            " ends anyway.",
            low=0,
            dynamic=True,
        ),
        Key(
            "keepAliveIntervalSeconds",
            "int",
            30,
            "Seconds of silence after which a peer is asked with a PING; it is dropped when as long again"
            " brings no answer.",
            low=1,
        ),
        Key(
            "connectionLivenessCheckTimeoutMillis",
            "long",
            5000,
            "Milliseconds that the connection of an existing producer or exclusive consumer has to answer a"
            " PING when another one wants its place; 0 or less switches the check off.",
        ),
        Key(
            "brokerMaxConnections",
            "int",
            0,
            "Client connections the broker accepts at the same time; 0 means no limit.",
            low=0,
        ),
        Key(
            "maxMessageSize",
            "int",
            5 * 1024 * 1024,
            "Bytes that one message's metadata and payload may take; told to clients when they connect. A"
            " frame may be 10 KiB longer.",
            low=1024,
        ),
    ],
)

FLOW: Section = (
    "Connections and back-pressure",
    [
        Key(
            "maxPendingPublishRequestsPerConnection",
            "int",
            1000,
            "Publishes of one connection that may wait for their receipts; at the limit the connection is"
            " not read until half of them are answered.",
            low=1,
        ),
        Key(
            "maxMessagePublishBufferSizeInMB",
            "int",
            None,
            "MiB of published, not yet confirmed payload in the whole broker; above it producers'"
            " connections are not read. -1 means no limit.",
            low=-1,
            dynamic=True,
            computed="half of direct memory",
        ),
        Key(
            "maxConcurrentNonPersistentMessagePerConnection",
            "int",
            1000,
            "Messages of one connection to non-persistent topics that may be in work; what comes on top is"
            " dropped.",
            low=0,
            used=False,
        ),
        Key(
            "maxConcurrentLookupRequest",
            "int",
            50_000,
            "Lookups and partition queries that may be in work; one more is answered with TooManyRequests.",
            low=1,
            dynamic=True,
            used=False,
        ),
        Key(
            "brokerAdaptiveRecvByteBufAllocatorMinimumSize",
            "int",
            1024,
            "Smallest receive buffer of a connection in bytes.",
            low=1,
        ),
        Key(
            "brokerAdaptiveRecvByteBufAllocatorInitialSize",
            "int",
            16 * 1024,
            "First receive buffer of a connection in bytes; later ones grow and shrink with what arrives.",
            low=1,
        ),
        Key(
            "brokerAdaptiveRecvByteBufAllocatorMaximumSize",
            "int",
            1024 * 1024,
            "Largest receive buffer of a connection in bytes. Cached entries that share it keep all of it"
            " alive (see managedLedgerCacheCopyEntries), so a smaller one pins less memory.",
            low=16,
        ),
        Key(
            "pulsarChannelWriteBufferHighWaterMark",
            "int",
            64 * 1024,
            "Bytes waiting to be sent to one client at which dispatching to its consumers pauses.",
            low=1,
        ),
        Key(
            "pulsarChannelWriteBufferLowWaterMark",
            "int",
            32 * 1024,
            "Bytes waiting to be sent at which dispatching goes on again.",
            low=0,
        ),
    ],
)

ENTRY_METADATA: Section = (
    "Broker entry metadata",
    [
        Key(
            "brokerEntryMetadataInterceptors",
            "list",
            None,
            "What the broker writes in front of every entry (PIP-70), as Apache's class names:"
            " `org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor` adds its clock,"
            " `org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor` a message index per topic."
            " Pulsar leaves it empty; the files shipped with Magnetar name both.",
            shipped=INTERCEPTORS,
        ),
        Key(
            "exposingBrokerEntryMetadataToClientEnabled",
            "bool",
            False,
            "Send that header on to consumers whose client says that it understands it; all others get the"
            " entry without it.",
        ),
    ],
)

METRICS: Section = (
    "Metrics",
    [
        Key(
            "exposeTopicLevelMetricsInPrometheus",
            "bool",
            True,
            "Give every topic its own series in `/metrics`; otherwise sums per namespace.",
        ),
        Key(
            "exposeConsumerLevelMetricsInPrometheus",
            "bool",
            False,
            "Give every consumer its own series as well.",
        ),
        Key(
            "exposeProducerLevelMetricsInPrometheus",
            "bool",
            False,
            "Give every producer its own series as well.",
        ),
        Key(
            "exposeManagedLedgerMetricsInPrometheus",
            "bool",
            True,
            "Publish the managed ledgers' series (pulsar_ml_*); the entry cache's are always there.",
        ),
        Key(
            "splitTopicAndPartitionLabelInPrometheus",
            "bool",
            False,
            "Put the partition's number into a label of its own instead of leaving it in the topic's name.",
        ),
        Key(
            "statsUpdateFrequencyInSecs",
            "int",
            60,
            "Seconds over which the topics' rates and averages are computed.",
            low=1,
        ),
    ],
)
