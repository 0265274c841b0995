"""Options of the JVM connector that this one does not obey: which are harmless, and which would mislead.

The JVM connector passes `pulsar.client.*`, `pulsar.reader.*`, `pulsar.producer.*` and `pulsar.admin.*` to the
configuration classes of Pulsar's Java client. Names without an effect on rows or security are accepted with a warning
that says why they have none. The others are refused with the remedy.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pyspark_pulsar.errors import OptionError

log = logging.getLogger("pyspark_pulsar")


def _by_name(kinds: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Returns by kind the reason of each name, given the names of each reason."""
    return {
        kind: {name: reason for reason, names in reasons.items() for name in names.split()}
        for kind, reasons in kinds.items()
    }


_QUEUE = "windows follow from the size of the messages"
_NO_ADMIN = "no admin requests are made"
_PLAN = "the driver looks for new partitions every ten seconds"

_WITHOUT_EFFECT: Final = _by_name(
    {
        "client": {
            "there are no threads or pools to size": (
                "numIoThreads numListenerThreads connectionsPerBroker enableBusyWait "
                "concurrentLookupRequest maxLookupRequest maxLookupRedirects"
            ),
            "pulsar.client.operationTimeoutMs limits every wait for an answer": (
                "lookupTimeoutMs connectionTimeoutMs requestTimeoutMs readTimeoutMs "
                "initialBackoffIntervalNanos maxBackoffIntervalNanos"
            ),
            "tasks keep one connection to each broker and end with it": (
                "connectionMaxIdleSeconds useTcpNoDelay keepAliveIntervalSeconds "
                "maxNumberOfRejectedRequestPerConnection"
            ),
            "the files are read for every connection": "autoCertRefreshSeconds",
            "Spark's progress events have the counts": "statsIntervalSeconds",
            _QUEUE: "memoryLimitBytes",
            "brokers see the name pyspark-pulsar": "description",
            "the sink writes exactly once by deduplication": "enableTransaction",
            "the machine's clock holds": "clock",
            "Spark's own metrics and events tell of tasks": "tracingEnabled openTelemetry",
            "all hosts of service.url are tried in turn": (
                "serviceUrlQuarantineInitDurationMs serviceUrlQuarantineMaxDurationMs"
            ),
        },
        "reader": {
            _QUEUE: (
                "receiverQueueSize poolMessages maxPendingChunkedMessage "
                "autoAckOldestChunkedMessageOnQueueFull expireTimeOfIncompleteChunkedMessageMillis"
            ),
            _PLAN: "autoUpdatePartitions autoUpdatePartitionsIntervalSeconds",
            "each query chooses it for itself": "readerName",
        },
        "producer": {
            "each task writes its own entries, and waits for a slower broker": (
                "blockIfQueueFull maxPendingMessages maxPendingMessagesAcrossPartitions "
                "batchingMaxPublishDelayMicros batchingPartitionSwitchFrequencyByPublishDelay "
                "lazyStartPartitionedProducers"
            ),
            _PLAN: "autoUpdatePartitions autoUpdatePartitionsIntervalSeconds",
            "the schema follows from the columns": "multiSchema",
            "entries of every size are compressed": "compressMinMsgBodySize",
            "the broker tells which topics have partitions": "isNonPartitionedTopicExpected",
        },
    }
)
"""By kind and name: the reason for which nothing depends on it."""

_NOT_BUILT = "this is not built"

_REFUSED: Final = _by_name(
    {
        "client": {
            "use service.url": "serviceUrl serviceUrlProvider",
            "write pulsar+ssl:// in service.url": "useTls",
            "use pulsar.client.authPluginClassName and authParams": "authentication",
            "use pulsar.client.authParams": "authParamMap",
            _NOT_BUILT: (
                "listenerName lookupProperties socks5ProxyAddress socks5ProxyUsername socks5ProxyPassword"
            ),
            "give the credentials of the role that is to read or write": "originalPrincipal",
            "names are resolved by the operating system: set its resolver": (
                "dnsLookupBindAddress dnsLookupBindPort dnsServerAddresses"
            ),
            "use PEM files: tlsTrustCertsFilePath, tlsCertificateFilePath and tlsKeyFilePath": (
                "useKeyStoreTls sslProvider sslFactoryPlugin sslFactoryPluginParams tlsKeyStoreType "
                "tlsKeyStorePath tlsKeyStorePassword tlsTrustStoreType tlsTrustStorePath "
                "tlsTrustStorePassword"
            ),
            "Python's own choice holds": "tlsCiphers tlsProtocols",
            "give a Pulsar proxy as service.url": "proxyServiceUrl proxyProtocol",
        },
        "reader": {
            "use topic, topics or topicsPattern": "topicName topicNames",
            "use startingOffsets or startingTime": (
                "startMessageId startMessageFromRollbackDurationInSec resetIncludeHead "
                "subscriptionInitialPosition"
            ),
            "use subscriptionPrefix": "subscriptionRolePrefix",
            "use predefinedSubscription": "subscriptionName",
            "use decryptionKeys": "cryptoKeyReader messageCrypto",
            "a query has no listener: transform the rows": (
                "readerListener readerInterceptorList readerDecryptFailListener"
            ),
            "batch queries read without a subscription, streams with a durable one": "subscriptionMode",
            _NOT_BUILT: "readCompacted keyHashRanges",
        },
        "producer": {
            "use topic": "topicName",
            "the sink's deduplication needs its own; see deliveryGuarantee": "producerName initialSequenceId accessMode",
            "the sink does not encrypt": "encryptionKeys cryptoKeyReader messageCrypto cryptoFailureAction",
            "the sink does not write chunks": "chunkingEnabled chunkMaxMessageSize",
            "rows go by their key": "messageRoutingMode hashingScheme customMessageRouter",
            "use batchingMaxMessages=1": "batchingEnabled",
            "entries follow the order of the rows": "batcherBuilder",
            _NOT_BUILT: "properties initialSubscriptionName",
            "only brokers copy messages between clusters": "isReplProducer",
        },
    }
)
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
