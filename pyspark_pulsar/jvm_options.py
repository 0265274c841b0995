"""Options of the JVM connector that this one does not obey: which are harmless, and which would mislead.

The JVM connector passes `pulsar.client.*`, `pulsar.reader.*`, `pulsar.producer.*` and `pulsar.admin.*` to the
configuration classes of Pulsar's Java client. Names without an effect on rows or security are accepted with a warning
that says why they have none. The others are refused with the remedy.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final

from pyspark_pulsar.errors import OptionError

log = logging.getLogger("pyspark_pulsar")

_THREADS = "there are no threads or pools to size"
_ONE_LIMIT = "pulsar.client.operationTimeoutMs limits every wait for an answer"
_SOCKET = "tasks keep one connection to each broker and end with it"
_QUEUE = "windows follow from the size of the messages"
_NO_ADMIN = "no admin requests are made"
_TASKS = "each task writes its own entries, and blocks while the broker is behind"
_PLAN = "the driver looks for new partitions every ten seconds"
_PER_QUERY = "each query chooses it for itself"

_WITHOUT_EFFECT: Final = {
    "client": {
        **dict.fromkeys(
            ("numIoThreads", "numListenerThreads", "connectionsPerBroker", "enableBusyWait"), _THREADS
        ),
        **dict.fromkeys(
            ("lookupTimeoutMs", "connectionTimeoutMs", "requestTimeoutMs", "readTimeoutMs"), _ONE_LIMIT
        ),
        **dict.fromkeys(("initialBackoffIntervalNanos", "maxBackoffIntervalNanos"), _ONE_LIMIT),
        **dict.fromkeys(("connectionMaxIdleSeconds", "useTcpNoDelay", "keepAliveIntervalSeconds"), _SOCKET),
        **dict.fromkeys(("concurrentLookupRequest", "maxLookupRequest", "maxLookupRedirects"), _THREADS),
        "maxNumberOfRejectedRequestPerConnection": _SOCKET,
        "autoCertRefreshSeconds": "the files are read for every connection",
        "statsIntervalSeconds": "Spark's progress events have the counts",
        "memoryLimitBytes": _QUEUE,
        "description": "brokers see the name pyspark-pulsar",
        "enableTransaction": "the sink writes exactly once by deduplication",
        "clock": "the machine's clock holds",
        **dict.fromkeys(("tracingEnabled", "openTelemetry"), "Spark's own metrics and events tell of tasks"),
        **dict.fromkeys(
            ("serviceUrlQuarantineInitDurationMs", "serviceUrlQuarantineMaxDurationMs"),
            "all hosts of service.url are tried in turn",
        ),
    },
    "reader": {
        **dict.fromkeys(("receiverQueueSize", "poolMessages", "maxPendingChunkedMessage"), _QUEUE),
        **dict.fromkeys(
            ("autoAckOldestChunkedMessageOnQueueFull", "expireTimeOfIncompleteChunkedMessageMillis"), _QUEUE
        ),
        **dict.fromkeys(("autoUpdatePartitions", "autoUpdatePartitionsIntervalSeconds"), _PLAN),
        "readerName": _PER_QUERY,
    },
    "producer": {
        **dict.fromkeys(
            ("blockIfQueueFull", "maxPendingMessages", "maxPendingMessagesAcrossPartitions"), _TASKS
        ),
        **dict.fromkeys(
            ("batchingMaxPublishDelayMicros", "batchingPartitionSwitchFrequencyByPublishDelay"), _TASKS
        ),
        **dict.fromkeys(("autoUpdatePartitions", "autoUpdatePartitionsIntervalSeconds"), _PLAN),
        "lazyStartPartitionedProducers": _TASKS,
        "multiSchema": "the schema follows from the columns",
        "compressMinMsgBodySize": "entries of every size are compressed",
        "isNonPartitionedTopicExpected": "the broker tells which topics have partitions",
    },
}
"""By kind and name: the reason for which nothing depends on it."""

_PEM = "use PEM files: tlsTrustCertsFilePath, tlsCertificateFilePath and tlsKeyFilePath"
_START = "use startingOffsets or startingTime"
_DEDUPLICATION = "the sink's deduplication needs its own; see deliveryGuarantee"
_TOPICS = "use topic, topics or topicsPattern"
_NOT_BUILT = "this is not built"

_REFUSED: Final = {
    "client": {
        "serviceUrl": "use service.url",
        "serviceUrlProvider": "use service.url",
        "useTls": "write pulsar+ssl:// in service.url",
        "authentication": "use pulsar.client.authPluginClassName and authParams",
        "authParamMap": "use pulsar.client.authParams",
        "listenerName": _NOT_BUILT,
        "lookupProperties": _NOT_BUILT,
        "originalPrincipal": "give the credentials of the role that is to read or write",
        **dict.fromkeys(
            ("dnsLookupBindAddress", "dnsLookupBindPort", "dnsServerAddresses"),
            "names are resolved by the operating system: set its resolver",
        ),
        **dict.fromkeys(
            (
                "useKeyStoreTls",
                "sslProvider",
                "sslFactoryPlugin",
                "sslFactoryPluginParams",
                "tlsKeyStoreType",
                "tlsKeyStorePath",
                "tlsKeyStorePassword",
                "tlsTrustStoreType",
                "tlsTrustStorePath",
                "tlsTrustStorePassword",
            ),
            _PEM,
        ),
        **dict.fromkeys(("tlsCiphers", "tlsProtocols"), "Python's own choice holds"),
        **dict.fromkeys(("proxyServiceUrl", "proxyProtocol"), "give a Pulsar proxy as service.url"),
        **dict.fromkeys(("socks5ProxyAddress", "socks5ProxyUsername", "socks5ProxyPassword"), _NOT_BUILT),
    },
    "reader": {
        **dict.fromkeys(("topicName", "topicNames"), _TOPICS),
        **dict.fromkeys(
            ("startMessageId", "startMessageFromRollbackDurationInSec", "resetIncludeHead"), _START
        ),
        "subscriptionRolePrefix": "use subscriptionPrefix",
        "subscriptionName": "use predefinedSubscription",
        **dict.fromkeys(("cryptoKeyReader", "messageCrypto"), "use decryptionKeys"),
        **dict.fromkeys(
            ("readerListener", "readerInterceptorList", "readerDecryptFailListener"),
            "a query has no listener: transform the rows",
        ),
        "subscriptionInitialPosition": _START,
        "subscriptionMode": "batch queries read without a subscription, streams with a durable one",
        "readCompacted": _NOT_BUILT,
        "keyHashRanges": _NOT_BUILT,
    },
    "producer": {
        "topicName": "use topic",
        **dict.fromkeys(("producerName", "initialSequenceId", "accessMode"), _DEDUPLICATION),
        **dict.fromkeys(("encryptionKeys", "cryptoKeyReader", "messageCrypto"), "the sink does not encrypt"),
        "cryptoFailureAction": "the sink does not encrypt",
        **dict.fromkeys(("chunkingEnabled", "chunkMaxMessageSize"), "the sink does not write chunks"),
        **dict.fromkeys(
            ("messageRoutingMode", "hashingScheme", "customMessageRouter"), "rows go by their key"
        ),
        "batchingEnabled": "use batchingMaxMessages=1",
        "batcherBuilder": "entries follow the order of the rows",
        "properties": _NOT_BUILT,
        "initialSubscriptionName": _NOT_BUILT,
        "isReplProducer": "only brokers copy messages between clusters",
    },
}
"""By kind and name: the remedy, or the reason where there is none."""


def notice(key: str) -> bool:
    """Warns that an option of the JVM connector has no effect. False for a name that it does not have.

    `key` is in lower case, as Spark passes it. OptionError for an option that would mislead.
    """
    if key == "admin.url":
        _warn("admin.url", _NO_ADMIN)
        return True
    prefix, _, rest = key.partition(".")
    kind, _, name = rest.partition(".")
    if prefix != "pulsar" or not name:
        return False
    if kind == "admin" and name in _names("client"):
        _warn(f"pulsar.admin.{_names('client')[name]}", _NO_ADMIN)
        return True
    written = _names(kind).get(name)
    if written is None:
        return False
    if written in _REFUSED[kind]:
        raise OptionError(f"pulsar.{kind}.{written} is not accepted: {_REFUSED[kind][written]}")
    _warn(f"pulsar.{kind}.{written}", _WITHOUT_EFFECT[kind][written])
    return True


@lru_cache
def _names(kind: str) -> dict[str, str]:
    """Returns the spelling of each known name, by its lower-case form; empty for an unknown kind."""
    known = [*_WITHOUT_EFFECT.get(kind, ()), *_REFUSED.get(kind, ())]
    if kind == "client":
        known += _OBEYED_OF_CLIENT
    return {name.lower(): name for name in known}


_OBEYED_OF_CLIENT: Final = (
    "authPluginClassName",
    "authParams",
    "operationTimeoutMs",
    "tlsTrustCertsFilePath",
    "tlsHostnameVerificationEnable",
    "tlsAllowInsecureConnection",
    "tlsCertificateFilePath",
    "tlsKeyFilePath",
)
"""Options of connections that `options` reads; `pulsar.admin.` has them as well."""


@lru_cache
def _warn(name: str, reason: str) -> None:
    """Warns once per process: Spark parses the options of a query several times."""
    log.warning("%s has no effect: %s", name, reason)
