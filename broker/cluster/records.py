"""The JSON of the nodes by which brokers find each other, in Pulsar's names and in the order of Apache 4.2.4.

A broker is named by `host:port` of its admin port. Its addresses are its identity in the node of a bundle: two brokers with
equal addresses would take bundles from each other, as Apache's would.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.service.topics.topic_ownership import Addresses, Listener

BROKERS: Final = "/loadbalance/brokers"
"""Above the node of each broker that is there."""
LEADER: Final = "/loadbalance/leader"
"""The node of the broker that chooses owners."""
BUNDLES: Final = "/namespace"
"""Above the nodes of owned bundles, by tenant, namespace and range."""
LOAD_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
"""The name of Apache's default in registrations. With another one its brokers would send all lookups to us, or none."""


class Member(NamedTuple):
    """A broker that is there, as its registration tells."""

    broker_id: str
    """`host:port` of its admin port."""
    addresses: Addresses
    """For its clients."""
    bundles: frozenset[str]
    """The bundles that it owned when it wrote the registration last."""


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


def encode_member(
    addresses: Addresses, version: str, started_ms: int, now_ms: int, bundles: Iterable[str]
) -> bytes:
    """Returns a registration, which is the load report too. Pulsar's name: LocalBrokerData.

    `bundles` are `tenant/namespace/range`; rates and usages are 0, so that Apache's leader counts bundles alone.
    """
    owned = list(bundles)
    unused = {"usage": 0.0, "limit": 0.0}
    urls = {
        "webServiceUrl": addresses.admin_url,
        "webServiceUrlTls": addresses.admin_url_tls,
        "pulsarServiceUrl": addresses.service_url,
        "pulsarServiceUrlTls": addresses.service_url_tls,
    }
    return _dumped(
        {
            **{key: url for key, url in urls.items() if url},
            "persistentTopicsEnabled": True,
            "nonPersistentTopicsEnabled": True,
            **dict.fromkeys(("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"), unused),
            **dict.fromkeys(("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut"), 0.0),
            "lastUpdate": now_ms,
            "lastStats": {},
            "numTopics": 0,
            "numBundles": len(owned),
            "numConsumers": 0,
            "numProducers": 0,
            "bundles": owned,
            "lastBundleGains": [],
            "lastBundleLosses": [],
            "brokerVersionString": version,
            "protocols": {},
            "advertisedListeners": _listeners(addresses),
            "loadManagerClassName": LOAD_MANAGER,
            "startTimestamp": started_ms,
            "maxResourceUsage": 0.0,
            "loadReportType": "LocalBrokerData",
        }
    )


def decode_member(name: str, value: bytes) -> Member:
    """Returns the registration of the broker `name`. Raises ValueError for other bytes."""
    found = _loaded(value)
    urls = ("pulsarServiceUrl", "pulsarServiceUrlTls", "webServiceUrl", "webServiceUrlTls")
    bundles = found.get("bundles")
    owned = frozenset(map(str, bundles)) if isinstance(bundles, list) else frozenset()
    return Member(name, _addresses(found, *urls), owned)


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
