"""Rows of the broker's table: addresses, connections, back-pressure, entry metadata, load balance, metrics.

Names and defaults are Pulsar's: its configuration class of release 4.2, and columns where 4.0 and 5.0 differ. The
words are ours. `foundation.settings.keys.Key` explains the columns.
"""

from __future__ import annotations

from foundation.settings.addresses import HOST, HOST_FORM, LOOPBACK
from foundation.settings.keys import PORT_MAX, PROFILES, Key, Section
from foundation.units import KIB, MIB

TIMESTAMP_INTERCEPTOR = "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor"
INDEX_INTERCEPTOR = "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"
"""The classes of Apache that brokerEntryMetadataInterceptors may name."""

EQUAL = "range_equally_divide"
"""Splits a bundle in the middle of its range."""
BY_TOPICS = "topic_count_equally_divide"
"""Splits so that half of the topics are on each side."""
AT_POSITIONS = "specified_positions_divide"
"""Splits at hashes that the request names."""
BY_RATES = "flow_or_qps_equally_divide"
"""Splits so that no part has more messages or bytes a second than a bundle may have."""
ALGORITHMS = (EQUAL, BY_TOPICS, AT_POSITIONS, BY_RATES)
"""All that Pulsar has."""

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

MAGNETAR = Section("Magnetar", (
    Key("pulsarDefaults", "string", "4.2", choices=PROFILES, ours=True,
        doc="Pulsar release whose defaults hold for every key that is not set, so that dashboards and "
            "limits behave as in that release. The entry cache decides as that release only with "
            "entryCachePolicy=pip430, or with fifo-ttl for 4.0."),
    Key("magnetarDataDirectory", "string", "data", ours=True,
        doc="Directory for everything kept on disk: the metadata store and the embedded bookie's files. A "
            "relative path starts at the working directory."),
    Key("magnetarInMemory", "bool", False, ours=True,
        doc="Keep nothing on disk: metadata and entries live in memory and are gone at exit. For tests."),
    Key("bookieAddress", "list", None, standalone=("embedded",),
        computed="registered if metadataStoreUrl is a ZooKeeper, else localhost:3181",
        form=(r"embedded|registered|.+:\d{1,5}",
              "embedded or host:port, the latter also several, or registered"), ours=True,
        doc="Bookies that store the entries: `embedded` runs a bookie inside the broker's process, "
            "`host:port` talks BookKeeper's v2 protocol to a bookie elsewhere, several of them with commas "
            "are the choice for ensembles, and `registered` uses the bookies in the ZooKeeper of "
            "metadataStoreUrl."),
    Key("bookieHttpPort", "list", None, form=(r"\d{1,5}", "a port"), ours=True,
        doc="Ports of the HTTP servers at the hosts of bookieAddress, one for all bookies or one for each in the same "
            "order: the console reads journal and read cache there. Not needed for bookies that register their HTTP "
            "server in ZooKeeper."),
))

SERVER = Section("Server", (
    Key("clusterName", "string", "cluster-a", standalone="standalone",
        doc="Name of the cluster; the `cluster` label of every metric and the answer of "
            "`/admin/v2/clusters`."),
    Key("brokerServicePort", "int", 6650, "port", low=0, high=PORT_MAX, optional=True,
        doc="TCP port of the binary protocol without TLS; 0 takes any free port, an empty value opens none."),
    Key("webServicePort", "int", 8080, "port", low=0, high=PORT_MAX, optional=True,
        doc="TCP port of the admin API and of `/metrics` without TLS; 0 takes any free port, an empty value opens "
            "none."),
    Key("bindAddress", "string", LOOPBACK,
        doc="Address that all ports listen on. Pulsar's default is 0.0.0.0, every address of the machine; "
             "a start with more than the loopback and without authenticationEnabled logs a warning."),
    Key("advertisedAddress", "string", None, standalone="localhost", form=HOST_FORM,
        computed="the machine's host name; localhost if bindAddress is the loopback",
        doc="Host name or address that clients are told to connect to."),
    Key("advertisedListeners", "list", None,
        form=(rf"[^:]+:pulsar(\+ssl)?://{HOST}:\d{{1,5}}", "name:pulsar://host:port"),
        doc="Further addresses by listener name, as `name:pulsar://host:port`; a client that names a "
            "listener in its lookup is sent there. A name stands once for each of pulsar and pulsar+ssl."),
    Key("internalListenerName", "string", None, v50="internal", used=False, computed="the first of advertisedListeners",
        doc="Listener of advertisedListeners that is used when a client names none."),
    Key("metadataStoreUrl", "string", None,
        form=(r"file:.+|unix:.+|memory:.*|zk:[^,;/]+([,;][^,;/]+)*(/[^/]+)*/?",
              "file:PATH, unix:SOCKET, memory:NAME or zk:host:port[,host:port][/chroot]"),
        computed="zookeeperServers, else `file:` and magnetarDataDirectory/metadata.sqlite; memory:local "
            "with magnetarInMemory",
        doc="Store of topics, ledger lists and cursor positions: `file:PATH` for the embedded store, `unix:SOCKET` "
            "for an embedded store that `magnetar metadata serve` shares among the brokers of a machine, "
            "`zk:host:port[,host:port][/chroot]` for ZooKeeper, which bookies and BookKeeper's tools share "
            "(needs `pip install WHEEL[zookeeper]`), `memory:NAME` with magnetarInMemory."),
    Key("zookeeperServers", "string", None,
        form=(r"[^,;/:]+:[^,;/]+([,;][^,;/]+)*(/[^/]+)*/?", "host:port[,host:port][/chroot]"),
        doc="Older name of a ZooKeeper in metadataStoreUrl, without `zk:`. It acts where metadataStoreUrl is empty."),
    Key("metadataStoreConfigPath", "string", None,
        doc="File with settings of the metadata store. For ZooKeeper: TLS by the names of ZooKeeper's client, such as "
            "`zookeeper.client.secure=true` (see docs/how-to/tls.md)."),
    Key("metadataStoreSessionTimeoutMillis", "int", 30_000, "ms", low=1000,
        doc="Milliseconds of silence after which ZooKeeper, or the server of an embedded store, ends a broker's session; "
            "a start waits as long for it."),
    Key("metadataStoreOperationTimeoutSeconds", "int", 30, "s", low=1,
        doc="Seconds that a read from ZooKeeper may take before the request that needs it fails. A write "
            "waits until ZooKeeper is back. At the server of an embedded store the limit holds for both."),
    Key("zooKeeperOperationTimeoutSeconds", "int", -1, "s",
        doc="Former name of metadataStoreOperationTimeoutSeconds; above 0 it holds in its place."),
    Key("brokerShutdownTimeoutMs", "long", 60_000, "ms", low=0, dynamic=True,
        doc="Milliseconds that a clean stop may take to drain and write what is pending before the process "
            "ends anyway."),
    Key("keepAliveIntervalSeconds", "int", 30, "s", low=1,
        doc="Seconds of silence after which a peer gets a PING; its connection is closed when as long again "
            "brings no answer."),
    Key("connectionLivenessCheckTimeoutMillis", "long", 5000, "ms",
        doc="Milliseconds that the connection of an existing producer or exclusive consumer has to answer a "
            "PING when another one wants its place; 0 or less switches the check off."),
    Key("brokerMaxConnections", "int", 0, "connections", low=0,
        doc="Client connections the broker accepts at the same time; 0 means no limit."),
    Key("brokerMaxConnectionsPerIp", "int", 0, "connections", low=0,
        doc="Client connections that one address may have at the same time; 0 means no limit."),
    Key("maxHttpServerConnections", "int", 2048, "connections", low=1,
        doc="Connections of the admin port at the same time; a further one is answered with 503."),
    Key("httpServerIdleTimeout", "int", 30_000, "ms", low=1,
        doc="Milliseconds that a connection of the admin port may take for its first request, for the body of a "
            "request, and for the next request."),
    Key("maxConcurrentHttpRequests", "int", 1024, "requests", low=1,
        doc="Requests of one class (lookup, read, write, publish, heavy, scrape) that may run or wait at the admin port; a "
            "further one is answered with 503."),
    Key("httpRequestsLimitEnabled", "bool", False,
        doc="Refuse HTTP requests above httpRequestsMaxPerSecond with 429."),
    Key("httpRequestsMaxPerSecond", "double", 100.0, "requests per second", low=0.001,
        needs=("httpRequestsLimitEnabled", "true"),
        doc="HTTP requests per second of all clients together; a second's worth may come at once."),
    Key("magnetarHttpRequestTimeoutSeconds", "int", None, "s", low=1, ours=True,
        computed="zooKeeperOperationTimeoutSeconds if above 0, else metadataStoreOperationTimeoutSeconds",
        doc="Seconds from the arrival of a request at the admin port to its answer, which is 504 then. A read is "
            "ended; a change goes on, and the log tells its outcome."),
    Key("magnetarHealthPort", "int", -1, "port", low=-1, high=PORT_MAX, ours=True,
        doc="TCP port at which a thread answers `GET /live`, also while the event loop is stuck, which it tells "
            "with 503. It listens on bindAddress; 0 takes any free port, -1 opens none."),
    Key("maxMessageSize", "int", 5 * MIB, "bytes", low=1024,
        doc="Bytes that one message's metadata and payload may take; told to clients when they connect. A "
            "frame may be 10 KiB longer."),
))

FLOW = Section("Connections and back-pressure", (
    Key("maxPendingPublishRequestsPerConnection", "int", 1000, "messages", low=1,
        doc="Publishes of one connection that may wait for their receipts; at the limit the connection is "
            "not read until half of them are answered."),
    Key("maxMessagePublishBufferSizeInMB", "int", None, "MiB", low=-1, dynamic=True,
        computed="half of direct memory",
        doc="MiB of published payload that waits for confirmation in the whole broker; above it producers' "
            "connections are not read. -1 means no limit."),
    Key("maxConcurrentNonPersistentMessagePerConnection", "int", 1000, "messages", low=0, used=False,
        doc="Messages of one connection to non-persistent topics that may be in progress; further ones are "
            "dropped."),
    Key("maxConcurrentLookupRequest", "int", 50_000, "requests", low=1, dynamic=True,
        doc="Lookups and partition queries that may be in progress; a further one is answered with "
            "TooManyRequests."),
    Key("brokerAdaptiveRecvByteBufAllocatorMinimumSize", "int", 1024, "bytes", low=1,
        doc="Smallest receive buffer of a connection in bytes."),
    Key("brokerAdaptiveRecvByteBufAllocatorInitialSize", "int", 16 * KIB, "bytes", low=1,
        doc="First receive buffer of a connection in bytes; later ones grow and shrink with what arrives."),
    Key("brokerAdaptiveRecvByteBufAllocatorMaximumSize", "int", MIB, "bytes", low=16,
        doc="Largest receive buffer of a connection in bytes. Cached entries that share it keep all of it "
            "alive (see managedLedgerCacheCopyEntries), so a smaller one pins less memory."),
    Key("pulsarChannelWriteBufferHighWaterMark", "int", 64 * KIB, "bytes", low=1,
        doc="Bytes waiting to be sent to one client at which dispatching to its consumers pauses."),
    Key("pulsarChannelWriteBufferLowWaterMark", "int", 32 * KIB, "bytes", low=0,
        doc="Bytes waiting to be sent at which dispatching goes on again."),
))

WEBSOCKET = Section("WebSocket", (
    Key("webSocketServiceEnabled", "bool", False, standalone=True,
        doc="Serve Pulsar's WebSocket API at the admin port, under `/ws/`."),
    Key("webSocketMaxTextFrameSize", "int", MIB, "bytes", low=1024,
        doc="Bytes of one text that a WebSocket client sends; a longer one ends its session (1009)."),
    Key("webSocketSessionIdleTimeoutMillis", "int", 300_000, "ms", low=0,
        doc="Milliseconds of silence in both directions after which a WebSocket session is closed, where "
            "webSocketPingDurationSeconds sends no pings, and in which a client must take a text; 0 means never."),
    Key("webSocketPingDurationSeconds", "int", -1, "s",
        doc="Seconds between two pings to a WebSocket client, whose session is closed when it does not answer; 0 "
            "or less sends none."),
))

ENTRY_METADATA = Section("Broker entry metadata", (
    Key("brokerEntryMetadataInterceptors", "list", None,
        shipped=(TIMESTAMP_INTERCEPTOR, INDEX_INTERCEPTOR),
        doc="Metadata that the broker writes in front of every entry (PIP-70), as Apache's class names: "
            "`org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor` adds its clock, "
            "`org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor` a message index per topic. "
            "Any other name is that of an interceptor of one's own, see docs/how-to/entry_metadata.md. "
            "Pulsar leaves it empty; the files shipped with Magnetar name both."),
    Key("exposingBrokerEntryMetadataToClientEnabled", "bool", False,
        doc="Send that metadata on to consumers whose client announces support for it; all others get the "
            "entry without it."),
))

BALANCE = Section("Load balance", (
    Key("loadBalancerEnabled", "bool", True, standalone=False,
        doc="Keep this broker's load report up to date, and let the leader balance by the reports of all: move bundles, "
            "divide them. Owners of bundles are chosen by what is known of loads either way."),
    Key("loadBalancerReportUpdateThresholdPercentage", "int", 10, "%", low=0, dynamic=True,
        doc="Change of a rate, a throughput, the number of topics or clients, or the use of a resource that is worth a new "
            "load report. A bundle that comes or goes always is."),
    Key("loadBalancerReportUpdateMinIntervalMillis", "int", 5000, "ms", low=1, dynamic=True,
        doc="Time between two looks whether a load report is due, and between two looks of the leader at those of all."),
    Key("loadBalancerReportUpdateMaxIntervalMinutes", "int", 15, "min", low=1, dynamic=True,
        doc="Age at which a load report is written anew."),
    Key("loadBalancerHostUsageCheckIntervalMinutes", "int", 1, "min", low=0, dynamic=True,
        doc="Time over which CPU and bandwidth are measured for a load report; 0 measures from one look to the next."),
    Key("loadBalancerResourceQuotaUpdateIntervalMinutes", "int", 15, "min", low=1,
        doc="Time between two writes of the averages of bundles and brokers, which the leader stores for Apache's brokers "
            "and tools."),
    Key("loadBalancerSheddingEnabled", "bool", True, dynamic=True, needs=("loadBalancerEnabled", "true"),
        doc="Let the leader move bundles from busy brokers to others."),
    Key("loadBalancerSheddingIntervalMinutes", "int", 1, "min", low=0, dynamic=True,
        doc="Time between two looks for busy brokers; 0 looks whenever the leader reads the reports."),
    Key("loadBalancerSheddingGracePeriodMinutes", "int", 30, "min", low=0, dynamic=True,
        doc="Time for which a bundle that was moved stays where it is."),
    Key("loadBalancerBrokerThresholdShedderPercentage", "int", 10, "points", low=0, dynamic=True,
        doc="Percentage points above the average use of all brokers from which a broker is busy."),
    Key("loadBalancerHistoryResourcePercentage", "double", 0.9, "of 1", low=0, high=1, dynamic=True,
        doc="What the past counts for in the use of a broker, from 0 to 1."),
    Key("loadBalancerBundleUnloadMinThroughputThreshold", "double", 10.0, "MiB/s", low=0, dynamic=True,
        doc="Traffic that is worth a move; a busy broker that would shed less keeps its bundles."),
    Key("lowerBoundarySheddingEnabled", "bool", False,
        doc="Let the busiest broker shed too where no one is busy and another has little to do."),
    Key("loadBalancerSheddingExcludedNamespaces", "list", None, dynamic=True,
        doc="Namespaces whose bundles are not moved for balance."),
    Key("loadBalancerCPUResourceWeight", "double", 1.0, "times", low=0, dynamic=True,
        doc="What CPU counts for in the use of a broker, which is its most used resource, each times its weight."),
    Key("loadBalancerDirectMemoryResourceWeight", "double", 0.0, "times", low=0, dynamic=True,
        doc="What the entry cache counts for, which takes the place of Java's direct memory."),
    Key("loadBalancerBandwidthInResourceWeight", "double", 1.0, "times", low=0, dynamic=True,
        doc="What received bytes count for, where the speed of the network is known."),
    Key("loadBalancerBandwidthOutResourceWeight", "double", 1.0, "times", low=0, dynamic=True,
        doc="What sent bytes count for, where the speed of the network is known."),
    Key("loadBalancerBrokerOverloadedThresholdPercentage", "int", 85, "%", low=0, dynamic=True,
        doc="Use above which a broker gets a bundle only where all brokers are like that."),
    Key("loadBalancerBrokerMaxTopics", "int", 50_000, "topics", low=0, dynamic=True,
        doc="Topics above which a broker gets a bundle only where all brokers have more."),
    Key("loadBalancerDistributeBundlesEvenlyEnabled", "bool", True, v50=False, dynamic=True,
        doc="Give a bundle to one of the brokers that have the fewest bundles of its namespace."),
    Key("failureDomainsEnabled", "bool", False, dynamic=True,
        doc="Keep the namespaces of an anti-affinity group in different failure domains before different brokers."),
    Key("loadBalancerAutoBundleSplitEnabled", "bool", True, dynamic=True, needs=("loadBalancerEnabled", "true"),
        doc="Let the leader divide bundles that have more of something than the next four keys say, while several brokers "
            "are there."),
    Key("loadBalancerNamespaceBundleMaxTopics", "int", 1000, "topics", low=1, dynamic=True,
        doc="Topics above which a bundle is divided."),
    Key("loadBalancerNamespaceBundleMaxSessions", "int", 1000, "clients", dynamic=True,
        doc="Producers and consumers above which a bundle is divided; 0 or less: never for that."),
    Key("loadBalancerNamespaceBundleMaxMsgRate", "int", 30_000, "messages/s", low=1, dynamic=True,
        doc="Messages per second, in and out, above which a bundle is divided."),
    Key("loadBalancerNamespaceBundleMaxBandwidthMbytes", "int", 100, "MiB/s", low=1, dynamic=True,
        doc="Bytes per second, in and out, above which a bundle is divided."),
    Key("loadBalancerNamespaceMaximumBundles", "int", 128, "bundles", low=1, dynamic=True,
        doc="Bundles of a namespace up to which they are divided for their load."),
    Key("loadBalancerAutoUnloadSplitBundlesEnabled", "bool", True, dynamic=True,
        doc="Give the parts of a divided bundle new owners."),
    Key("supportedNamespaceBundleSplitAlgorithms", "list", ALGORITHMS, dynamic=True, choices=ALGORITHMS,
        doc="Ways to divide a bundle that requests may name."),
    Key("defaultNamespaceBundleSplitAlgorithm", "string", EQUAL, dynamic=True, choices=ALGORITHMS,
        doc="The way to divide a bundle where the request names none, and of the leader: in the middle of its range, with "
            "half of its topics on each side, or so that no part has more messages or bytes a second than the keys above "
            "say."),
    Key("flowOrQpsDifferenceThresholdPercentage", "int", 10, "%", low=0, dynamic=True,
        doc="Part by which a bundle may be above these rates before flow_or_qps_equally_divide divides it."),
))

METRICS = Section("Metrics", (
    Key("exposeTopicLevelMetricsInPrometheus", "bool", True,
        doc="Give every topic its own series in `/metrics`; otherwise sums per namespace."),
    Key("exposeIdleTopicsInPrometheus", "bool", True, ours=True,
        doc="Give idle topics their own series, too. `false` leaves out topics without a producer and a consumer that "
            "have not changed since the last whole window began; sums over topics still count them."),
    Key("exposeConsumerLevelMetricsInPrometheus", "bool", False,
        doc="Give every consumer its own series as well."),
    Key("exposeProducerLevelMetricsInPrometheus", "bool", False,
        doc="Give every producer its own series as well."),
    Key("exposeSubscriptionBacklogAgeInPrometheus", "bool", False, needs=("backlogQuotaCheckEnabled", "true"),
        doc="Find the age of each subscription's oldest unacknowledged message at each check of backlog quotas: in "
            "`/metrics` with topics' own series, and in the subscription's stats."),
    Key("exposeManagedLedgerMetricsInPrometheus", "bool", True,
        doc="Publish the managed ledgers' series (pulsar_ml_*); the entry cache's are always there."),
    Key("splitTopicAndPartitionLabelInPrometheus", "bool", False,
        doc="Put the partition's number into its own label instead of leaving it in the topic's name."),
    Key("statsUpdateFrequencyInSecs", "int", 60, "s", low=1,
        doc="Seconds over which the topics' rates and averages are computed."),
    Key("loadBalancerOverrideBrokerNics", "list", None,
        doc="Network interfaces whose traffic pulsar_lb_bandwidth_in_usage and _out_usage compare with their speed; "
            "empty takes all physical ones that are up."),
    Key("loadBalancerOverrideBrokerNicSpeedGbps", "double", None, "Gbit/s", low=0, optional=True,
        doc="Speed of each of these interfaces in Gbit/s, where Linux does not know it; without a speed these two "
            "series are left out."),
))

# fmt: on
