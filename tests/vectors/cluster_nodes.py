"""Reads a recorded node of JSON or text into values of ours, writes it again, and compares it field by field.

The rewriting is that of the broker: the node is put into a store, the room that owns such nodes opens it there and changes
it, and the value that the store has then is compared with the recorded one. Differences that are meant stand in `NAMED`;
nodes that nothing of ours writes stand in `READ_ALONE`, and are compared as `magnetar metadata` reads them.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from bookie_stub.cluster.registration import LAYOUT
from bookie_stub.disk.cookie import Configured, check_layout, cookie_text
from bookkeeper.ensembles.racks import BookieRacks
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.cluster.records import (
    LoadReport,
    decode_bundle,
    decode_leader,
    decode_member,
    decode_owner,
    encode_bundle,
    encode_leader,
    encode_member,
    encode_owner,
)
from broker.compose.dynamic_settings import DynamicSettings
from broker.config import load_broker_settings
from broker.service.limits.broker_limits import BrokerLimits
from broker.service.limits.resource_groups import ResourceGroups
from broker.service.namespaces.clusters import Clusters
from broker.service.namespaces.namespaces import Namespaces
from broker.service.settings import ServiceSettings
from broker.service.topics.topic_ownership import Addresses
from magnetar.metadata.node_values import read_value
from protocol.bookie_service_info import endpoints_of, service_info

READ_ALONE: Final[Mapping[str, str]] = {
    "/pulsar/functions": "the store of function packages, which Magnetar does not have",
    "/stream(/.*)?": "the table service of BookKeeper, which Magnetar does not have",
    "/loadbalance/broker-time-average/.*": "sums over bundles, which the node does not name",
}
"""Paths of nodes that Magnetar reads in its tools and never writes, and the reason."""
NAMED: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "/loadbalance/brokers/.*": (
        frozenset(["maxResourceUsage", "msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut"]),
        "sums are made of numbers of double precision, in another order",
    ),
    "/ledgers/cookies/.*": (frozenset({"indexDirs"}), "Magnetar's cookie names the folders of indexes too"),
}
"""Fields in which a node that Magnetar writes differs, by the path, and the reason."""


class Compared(NamedTuple):
    """The outcome for one node."""

    difference: str | None
    """The first difference that is not named, None without one."""
    reasons: frozenset[str] = frozenset()
    """Reasons of the named differences, and of a node that is read alone."""


def compare(path: str, data: bytes, decoded: Any) -> Compared | None:
    """Compares one node; None for a path that has no replayer. Raises BrokerError and ValueError for unreadable bytes."""
    for pattern, reason in READ_ALONE.items():
        if re.fullmatch(pattern, path):
            return Compared(_read(path, data, decoded), frozenset({f"{pattern}: read alone: {reason}"}))
    for pattern, rewritten in _REWRITTEN.items():
        if found := re.fullmatch(pattern, path):
            # The output of our tools is compared too.
            if (difference := _read(path, data, decoded)) is not None:
                return Compared(difference)
            return _fields(path, decoded, rewritten(found, data))
    return None


def _read(path: str, data: bytes, decoded: Any) -> str | None:
    shown = read_value(path, data)
    if isinstance(decoded, str) and shown.form != "JSON":
        got: Any = "\n".join(shown.lines())
        decoded = decoded.rstrip("\n")
    elif decoded is None:
        got, decoded = "".join("".join(line.split()) for line in shown.lines()), data.hex()
    else:
        got = shown.parsed
    return None if got == decoded else f"as the tools read it: want {decoded}, got {got}"


def _fields(path: str, decoded: Any, written: bytes) -> Compared:
    wanted, got = (
        _tree(decoded),
        _tree(json.loads(written) if isinstance(decoded, dict) else written.decode()),
    )
    reasons = set()
    for field in sorted(wanted.keys() | got.keys()):
        if wanted.get(field) == got.get(field):
            continue
        for pattern, (fields, reason) in NAMED.items():
            if field in fields and re.fullmatch(pattern, path):
                reasons.add(f"{pattern}: {reason}")
                break
        else:
            return Compared(f"{field}: want {wanted.get(field)}, got {got.get(field)}")
    return Compared(None, frozenset(reasons))


def _tree(value: Any) -> dict[str, Any]:
    """Returns the fields of an object, or the lines of a text by what stands before their colon."""
    if isinstance(value, dict):
        return value
    lines = str(value).splitlines()
    return {line.partition(": ")[0] if ": " in line else str(place): line for place, line in enumerate(lines)}


def _in_store(
    rewrite: Callable[[MemoryMetadataStore, re.Match[str]], Awaitable[None]],
) -> Callable[[re.Match[str], bytes], bytes]:
    """Returns what a store has after `rewrite`, which reads the node there and writes it."""

    async def rewritten(found: re.Match[str], data: bytes) -> bytes:
        store = MemoryMetadataStore()
        await store.put(found[0], data)
        await rewrite(store, found)
        after = await store.get(found[0])
        assert after is not None
        assert after.version > 0, f"{found[0]} was not written again"
        return after.value

    return lambda found, data: asyncio.run(rewritten(found, data))


async def _tenant(store: MemoryMetadataStore, found: re.Match[str]) -> None:
    namespaces = Namespaces(store, "c1")
    await namespaces.stored.open()
    await namespaces.stored.tenants.change(found[1], lambda before: before)


async def _policies(store: MemoryMetadataStore, found: re.Match[str]) -> None:
    namespaces = Namespaces(store, "c1")
    await namespaces.stored.open()
    await namespaces.stored.policies.change(found[1], lambda before: before)


async def _local_policies(store: MemoryMetadataStore, found: re.Match[str]) -> None:
    namespaces = Namespaces(store, "c1")
    await namespaces.stored.open()
    await namespaces.stored.local.change(found[1], lambda before: before)


async def _cluster(store: MemoryMetadataStore, found: re.Match[str]) -> None:
    clusters = Clusters(store, "c1")
    await clusters.update(found[1], await clusters.get(found[1]))


async def _isolation(store: MemoryMetadataStore, found: re.Match[str]) -> None:
    clusters = Clusters(store, "c1")
    for name, policy in (await clusters.isolation_policies(found[1])).items():
        assert isinstance(policy, dict)
        await clusters.set_isolation_policy(found[1], name, policy)
    await clusters.set_isolation_policy(found[1], "none", None)


async def _domain(store: MemoryMetadataStore, found: re.Match[str]) -> None:
    clusters = Clusters(store, "c1")
    await clusters.set_domain(found[1], found[2], await clusters.domain(found[1], found[2]))


async def _settings(store: MemoryMetadataStore, _found: re.Match[str]) -> None:
    started = load_broker_settings(None, environ={}, overrides=[])
    dynamic = DynamicSettings(started, store, lambda _settings: None)
    await dynamic.open()
    for name, text in dict(dynamic.texts).items():
        await dynamic.set(name, text)
    await dynamic.unset(dynamic.names[0])


async def _group(store: MemoryMetadataStore, found: re.Match[str]) -> None:
    limits = BrokerLimits(
        ServiceSettings(), now_ns=time.monotonic_ns, call_later=get_running_loop().call_later
    )
    groups = ResourceGroups(store, Namespaces(store, "c1"), limits)
    await groups.open()
    await groups.put(found[1], {})


async def _racks(store: MemoryMetadataStore, _found: re.Match[str]) -> None:
    racks = BookieRacks(store)
    await racks.open()
    await racks.change(lambda before: before)


def _member(found: re.Match[str], data: bytes) -> bytes:
    member, recorded = decode_member(found[1], data), json.loads(data)
    report = LoadReport(
        member.updated_ms, member.load, recorded["lastBundleGains"], recorded["lastBundleLosses"]
    )
    return encode_member(
        member.addresses, recorded["brokerVersionString"], recorded["startTimestamp"], report
    )


def _bundle_average(_: re.Match[str], data: bytes) -> bytes:
    return encode_bundle(decode_bundle(data))


def _leader(_found: re.Match[str], data: bytes) -> bytes:
    host = decode_leader(data)
    leader = Addresses("", f"http://{host}", "", "", {})
    assert leader.broker_id == host
    return encode_leader(leader)


def _owner(_found: re.Match[str], data: bytes) -> bytes:
    written = encode_owner(decode_owner(data))
    assert written == data, "the bytes differ"
    return written


def _bookie(found: re.Match[str], data: bytes) -> bytes:
    """Returns the words of the endpoints that ours writes."""
    address = endpoints_of(found[1], data).rpc
    assert address is not None
    host, _, port = address.rpartition(":")
    written = service_info(host, int(port))
    assert written == data, "the bytes differ"
    return "\n".join(read_value(found[0], written).lines()).encode()


def _cookie(found: re.Match[str], data: bytes) -> bytes:
    cookie = data.decode()
    check_layout(cookie)
    fields = {
        name: text.strip('"') for name, _, text in (line.partition(": ") for line in cookie.splitlines())
    }
    ledgers = fields["ledgerDirs"].split("\\t")[1:]
    return cookie_text(
        found[1],
        fields["instanceId"],
        Configured(_paths(fields["journalDir"].split(",")), _paths(ledgers), _paths(ledgers)),
    ).encode()


def _paths(names: list[str]) -> list[Path]:
    return [Path(name) for name in names]


_REWRITTEN: Final[dict[str, Callable[[re.Match[str], bytes], bytes]]] = {
    "/admin/policies/([^/]+)": _in_store(_tenant),
    "/admin/policies/([^/]+/[^/]+)": _in_store(_policies),
    "/admin/local-policies/([^/]+/[^/]+)": _in_store(_local_policies),
    "/admin/clusters/([^/]+)": _in_store(_cluster),
    "/admin/clusters/([^/]+)/namespaceIsolationPolicies": _in_store(_isolation),
    "/admin/clusters/([^/]+)/failureDomain/([^/]+)": _in_store(_domain),
    "/admin/configuration": _in_store(_settings),
    "/admin/resourcegroups/([^/]+)": _in_store(_group),
    "/bookies": _in_store(_racks),
    "/loadbalance/brokers/([^/]+)": _member,
    "/loadbalance/bundle-data/.*": _bundle_average,
    "/loadbalance/leader": _leader,
    "/namespace/[^/]+/[^/]+/[^/]+": _owner,
    "/ledgers/LAYOUT": lambda _found, _data: LAYOUT,
    "/ledgers/INSTANCEID": lambda _found, data: str(UUID(data.decode())).encode(),
    "/ledgers/cookies/(.+)": _cookie,
    "/ledgers/available/(.+)": _bookie,
}
"""By path: what ours writes for what it read."""
