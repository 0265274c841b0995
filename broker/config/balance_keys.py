"""Rows of the broker's table: the load balance over several brokers, and how namespaces are divided into bundles."""

from __future__ import annotations

from foundation.settings.keys import Key, Section

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
# As in server_keys.py.

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

# fmt: on
