"""The JSON of the nodes by which brokers find each other, in Pulsar's names and in the order of Apache 4.2.4.

A broker is named by `host:port` of its admin port. Its addresses are its identity in the node of a bundle: two brokers with
equal addresses would take bundles from each other, as Apache's would.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from broker.cluster.loads import Average, BrokerLoad, BundleAverage, BundleLoad, ResourceUse, bundle_load
from broker.service.topics.topic_ownership import Addresses, Listener
from foundation.value import Json

BROKERS: Final = "/loadbalance/brokers"
"""Above the node of each broker that is there."""
LEADER: Final = "/loadbalance/leader"
"""The node of the broker that chooses owners."""
BUNDLES: Final = "/namespace"
"""Above the nodes of owned bundles, by tenant, namespace and range."""
BUNDLE_AVERAGES: Final = "/loadbalance/bundle-data"
"""Above the averages of bundles, by tenant, namespace and range."""
BROKER_AVERAGES: Final = "/loadbalance/broker-time-average"
"""Above the averages of brokers."""
LOAD_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
"""The name of Apache's default in registrations. With another one its brokers would send all lookups to us, or none."""

_RESOURCES: Final = {
    "cpu": "cpu",
    "memory": "memory",
    "directMemory": "direct_memory",
    "bandwidthIn": "bandwidth_in",
    "bandwidthOut": "bandwidth_out",
}
"""Fields of a `BrokerLoad` by their names in a registration, in order."""
_TOTALS: Final = {
    "msgThroughputIn": "throughput_in",
    "msgThroughputOut": "throughput_out",
    "msgRateIn": "rate_in",
    "msgRateOut": "rate_out",
}
"""Fields of a `BundleLoad` and of an `Average` by their names in sums."""
_STATS: Final = (
    "msgRateIn",
    "msgThroughputIn",
    "msgRateOut",
    "msgThroughputOut",
    "consumerCount",
    "producerCount",
    "topics",
    "cacheSize",
)
"""The fields of a `BundleLoad`, in order."""
_AVERAGE: Final = ("maxSamples", "numSamples", *_TOTALS)
"""The fields of an `Average`, in order."""


class Member(NamedTuple):
    """A broker that is there, as its registration tells."""

    broker_id: str
    """`host:port` of its admin port."""
    addresses: Addresses
    """For its clients."""
    load: BrokerLoad
    """Its load when it wrote the registration last, with each bundle that it owned."""
    updated_ms: int
    """When that was, by its clock."""


class LoadReport(NamedTuple):
    """The changing part of a registration."""

    now_ms: int
    """The time."""
    load: BrokerLoad
    """The load, with each owned bundle."""
    gained: Sequence[str] = ()
    """Bundles that the report before did not have."""
    lost: Sequence[str] = ()
    """Bundles that it had, and this one has not."""


def encode_owner(addresses: Addresses) -> bytes:
    """Returns the node of a bundle: the addresses of its owner. Pulsar's name: NamespaceEphemeralData."""
    urls = {
        "nativeUrl": addresses.service_url,
        "nativeUrlTls": addresses.service_url_tls,
        "httpUrl": addresses.admin_url,
        "httpUrlTls": addresses.admin_url_tls,
    }
    owner: dict[str, object] = {key: url for key, url in urls.items() if url}
    return _dumped({**owner, "disabled": False, "advertisedListeners": _listeners(addresses)})


def decode_owner(value: bytes) -> Addresses:
    """Returns the addresses in the node of a bundle. Raises ValueError for other bytes."""
    found = _loaded(value)
    return _addresses(found, "nativeUrl", "nativeUrlTls", "httpUrl", "httpUrlTls")


def encode_leader(addresses: Addresses) -> bytes:
    """Returns the node of the leader."""
    return _dumped(
        {
            "brokerId": addresses.broker_id,
            "serviceUrl": addresses.admin_url or addresses.admin_url_tls,
        }
    )


def decode_leader(value: bytes) -> str:
    """Returns the name of the leading broker. Raises ValueError for other bytes."""
    return str(_loaded(value).get("brokerId", ""))


def encode_member(addresses: Addresses, version: str, started_ms: int, report: LoadReport) -> bytes:
    """Returns a registration, which is the load report too. Pulsar's name: LocalBrokerData."""
    return _dumped(member_json(addresses, version, started_ms, report))


def member_json(addresses: Addresses, version: str, started_ms: int, report: LoadReport) -> dict[str, Json]:
    """Returns the fields of a registration."""
    load, total = report.load, report.load.total
    urls = {
        "webServiceUrl": addresses.admin_url,
        "webServiceUrlTls": addresses.admin_url_tls,
        "pulsarServiceUrl": addresses.service_url,
        "pulsarServiceUrlTls": addresses.service_url_tls,
    }
    return {
        **{key: url for key, url in urls.items() if url},
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        **{key: dict(getattr(load, field)._asdict()) for key, field in _RESOURCES.items()},
        **{key: getattr(total, field) for key, field in _TOTALS.items()},
        "lastUpdate": report.now_ms,
        "lastStats": {bundle: dict(zip(_STATS, one, strict=True)) for bundle, one in load.bundles.items()},
        "numTopics": total.topics,
        "numBundles": len(load.bundles),
        "numConsumers": total.consumers,
        "numProducers": total.producers,
        "bundles": list(load.bundles),
        "lastBundleGains": list(report.gained),
        "lastBundleLosses": list(report.lost),
        "brokerVersionString": version,
        "protocols": {},
        "advertisedListeners": cast("Json", _listeners(addresses)),
        "loadManagerClassName": LOAD_MANAGER,
        "startTimestamp": started_ms,
        "maxResourceUsage": load.used(),
        "loadReportType": "LocalBrokerData",
    }


def decode_member(name: str, value: bytes) -> Member:
    """Returns the registration of the broker `name`. Raises ValueError for other bytes."""
    found = _loaded(value)
    urls = ("pulsarServiceUrl", "pulsarServiceUrlTls", "webServiceUrl", "webServiceUrlTls")
    named, stats = found.get("bundles"), _table(found, "lastStats")
    bundles = {
        str(bundle): _bundle(_table(stats, str(bundle)))
        for bundle in (named if isinstance(named, list) else ())
    }
    load = BrokerLoad(
        _usage(found, "cpu"),
        _usage(found, "memory"),
        _usage(found, "directMemory"),
        _usage(found, "bandwidthIn"),
        _usage(found, "bandwidthOut"),
        bundles,
    )
    return Member(name, _addresses(found, *urls), load, int(_number(found, "lastUpdate")))


def encode_bundle(average: BundleAverage) -> bytes:
    """Returns the node of the averages of a bundle. Pulsar's name: BundleData."""
    return _dumped(
        {
            "shortTermData": dict(zip(_AVERAGE, average.short, strict=True)),
            "longTermData": dict(zip(_AVERAGE, average.long, strict=True)),
            "topics": average.topics,
        }
    )


def decode_bundle(value: bytes) -> BundleAverage:
    """Returns the averages in a node. Raises ValueError for other bytes."""
    found = _loaded(value)
    short, long = _table(found, "shortTermData"), _table(found, "longTermData")
    return BundleAverage(_average(short), _average(long), int(_number(found, "topics")))


def encode_averages(averages: Iterable[BundleAverage]) -> bytes:
    """Returns the node of the averages of a broker, the sums over its bundles. Pulsar's name: TimeAverageBrokerData."""
    every = list(averages)
    return _dumped(
        {
            f"{term}Term{key[0].upper()}{key[1:]}": sum(getattr(getattr(one, term), field) for one in every)
            + 0.0
            for term in ("short", "long")
            for key, field in _TOTALS.items()
        }
    )


def _usage(found: Mapping[str, object], key: str) -> ResourceUse:
    one = _table(found, key)
    return ResourceUse(_number(one, "usage"), _number(one, "limit"))


def _bundle(found: Mapping[str, object]) -> BundleLoad:
    return bundle_load([_number(found, key) for key in _STATS])


def _average(found: Mapping[str, object]) -> Average:
    samples = (int(_number(found, key)) for key in _AVERAGE[:2])
    return Average(*samples, *(_number(found, key) for key in _AVERAGE[2:]))


def _table(found: Mapping[str, object], key: str) -> dict[str, object]:
    value = found.get(key)
    return value if isinstance(value, dict) else {}


def _number(found: Mapping[str, object], key: str) -> float:
    value = found.get(key)
    return value if isinstance(value, (int, float)) else 0


def _addresses(
    found: Mapping[str, object], native: str, native_tls: str, http: str, http_tls: str
) -> Addresses:
    listeners = found.get("advertisedListeners")
    return Addresses(
        _text(found, native),
        _text(found, http),
        _text(found, native_tls),
        _text(found, http_tls),
        {
            str(name): Listener(_text(urls, "brokerServiceUrl"), _text(urls, "brokerServiceUrlTls"))
            for name, urls in (listeners.items() if isinstance(listeners, dict) else ())
            if isinstance(urls, dict)
        },
    )


def _listeners(addresses: Addresses) -> dict[str, dict[str, str]]:
    return {
        name: {
            key: url
            for key, url in (
                ("brokerServiceUrl", listener.url),
                ("brokerServiceUrlTls", listener.url_tls),
            )
            if url
        }
        for name, listener in addresses.listeners.items()
    }


def _text(found: Mapping[str, object], key: str) -> str:
    value = found.get(key)
    return value if isinstance(value, str) else ""


def _dumped(value: object) -> bytes:
    # Without spaces, as Jackson writes it.
    return json.dumps(value, separators=(",", ":")).encode()


def _loaded(value: bytes) -> dict[str, object]:
    found = json.loads(value)
    if not isinstance(found, dict):
        raise ValueError("a JSON object is expected")
    return found
