"""NodePath: kind, namespace and topic of a node, read from its path. Pure: no I/O.

Partitioned topics are read in both layouts, Pulsar's (`t/ns/persistent/x`) and ours (`persistent/t/ns/x`).

Names of Pulsar 1 have a cluster between tenant and namespace. Apache's brokers still use such names for their health checks
(`pulsar/CLUSTER/HOST:PORT`), so those topics hold ledgers that must count as used.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus

_DOMAINS = ("persistent", "non-persistent")
_SCOPES = ("local", "global")
"""Of policies of topics in nodes of Pulsar 5.0."""
_LEDGER = re.compile(r"/ledgers/(\d+(?:/\d{4})+)/L(\d{4})")
_LEDGER_PARENT = re.compile(r"/ledgers/\d+(/\d{4})*")
_PARENT = "parent"
"""A node above others, without a meaning of its own."""
_OTHER = "other"


class NodePath(NamedTuple):
    """The meaning of a node's path. A part that the path does not have is None."""

    kind: str
    """A word of the column `kind` in `docs/reference/audits.md`."""
    namespace: str | None = None
    """tenant/namespace, or tenant/cluster/namespace"""
    topic: str | None = None
    """persistent://namespace/name"""
    name: str | None = None
    """Of the subscription or tenant."""
    ledger_id: int | None = None
    """Of a node below `/ledgers`."""


def describe(path: str) -> NodePath:
    """Returns the meaning of a path that begins at the store's root."""
    head, _, rest = path[1:].partition("/")
    parts = rest.split("/") if rest else []
    if head == "managed-ledgers":
        return _managed_ledger(parts)
    if head == "ledgers":
        return _ledger(path)
    if head == "admin":
        return _admin(parts)
    if head == "schemas":
        return _of_topic("schema", parts) if len(parts) == 3 else NodePath(_PARENT)
    if head == "schema-versions":
        return _schema_versions(parts)
    if head == "partition-shares" and len(parts) == 1:
        return _partition_shares(parts[0])
    if head == "namespace":
        return _of_namespace("bundle-owner", parts)
    if head == "loadbalance" and parts[:1] == ["bundle-data"]:
        return _of_namespace("bundle-data", parts[1:])
    return NodePath(_OTHER)


def _topic_name(domain: str, namespace: str, quoted: str) -> str:
    return f"{domain}://{namespace}/{unquote(quoted)}"


def _managed_ledger(parts: list[str]) -> NodePath:
    namespace, rest = _split_namespace(parts)
    if namespace is None:
        return NodePath(_PARENT if len(parts) < 4 else _OTHER)
    if len(rest) < 2:
        return NodePath(_PARENT)
    topic = _topic_name(rest[0], namespace, rest[1])
    if len(rest) == 2:
        return NodePath("managed-ledger", namespace, topic)
    if len(rest) == 3:
        return NodePath("cursor", namespace, topic, unquote(rest[2]))
    return NodePath(_OTHER)


def _split_namespace(parts: list[str]) -> tuple[str | None, list[str]]:
    """Returns the namespace before the first domain, and the parts from the domain on; None for a path without both."""
    for length in (2, 3):
        if len(parts) > length and parts[length] in _DOMAINS:
            return "/".join(parts[:length]), parts[length:]
    return None, []


def _ledger(path: str) -> NodePath:
    found = _LEDGER.fullmatch(path)
    if found is not None:
        return NodePath("ledger", ledger_id=int(found[1].replace("/", "") + found[2]))
    return NodePath(_PARENT if _LEDGER_PARENT.fullmatch(path) else "bookkeeper")


def _admin(parts: list[str]) -> NodePath:
    kind, rest = (parts[0], parts[1:]) if parts else ("", [])
    if kind == "policies" and len(rest) == 1:
        return NodePath("tenant", name=rest[0])
    if kind == "policies" and len(rest) in (2, 3):
        return NodePath("namespace", "/".join(rest))
    if kind == "local-policies":
        return _of_namespace("local-policies", rest)
    if (kind == "health" and not rest) or (kind == "health-probes" and len(rest) == 1):
        # The first in stores of earlier versions.
        return NodePath("health")
    if kind == "deletions" and len(rest) == 2:
        return _deletion(rest[0], unquote(rest[1]))
    if kind == "topic-policies" and len(rest) == 1:
        return _topic_policies(unquote(rest[0]))
    if kind == "topic-policies" and len(rest) == 5 and rest[0] in _SCOPES:
        # Of Pulsar 5.0 (PIP-469), which quotes names with Java's URLEncoder.
        return _topic_policies(f"{rest[3]}://{rest[1]}/{rest[2]}/{unquote_plus(rest[4])}")
    if kind == "partitioned-topics":
        # Versions up to 0.2.0 began with the domain, Pulsar begins with the tenant: put into Pulsar's order.
        if len(rest) == 4 and rest[0] in _DOMAINS and rest[2] not in _DOMAINS:
            rest = [rest[1], rest[2], rest[0], rest[3]]
        namespace, named = _split_namespace(rest)
        if namespace is None or len(named) != 2:
            return NodePath(_PARENT)
        return NodePath("partitioned-topic", namespace, _topic_name(named[0], namespace, named[1]))
    return NodePath(_OTHER)


def _deletion(kind: str, name: str) -> NodePath:
    """Describes an intent to delete a topic, a namespace or a tenant."""
    if kind in ("topic", "partitioned"):
        return NodePath("deletion", "/".join(name.partition("://")[2].split("/")[:2]), name)
    return NodePath("deletion", name) if kind == "namespace" else NodePath("deletion", name=name)


def _topic_policies(topic: str) -> NodePath:
    domain, separator, rest = topic.partition("://")
    parts = rest.split("/", 2)
    if not separator or domain not in _DOMAINS or len(parts) != 3:
        return NodePath(_OTHER)
    return NodePath("topic-policies", f"{parts[0]}/{parts[1]}", topic)


def _schema_versions(parts: list[str]) -> NodePath:
    if len(parts) < 3:
        return NodePath(_PARENT)
    return _of_topic("schema-index" if len(parts) == 3 else "schema-version", parts)


def _partition_shares(name: str) -> NodePath:
    topic, separator, rest = name.partition(":")
    domain, slashes, local = unquote(topic).partition("://")
    parts = local.split("/", 2)
    if not separator or not slashes or len(parts) != 3:
        return NodePath(_OTHER)
    namespace, subscription = f"{parts[0]}/{parts[1]}", unquote(rest.rpartition(":")[0])
    return NodePath("partition-shares", namespace, f"{domain}://{local}", subscription)


def _of_topic(kind: str, parts: list[str]) -> NodePath:
    namespace = f"{parts[0]}/{parts[1]}"
    return NodePath(kind, namespace, _topic_name(_DOMAINS[0], namespace, parts[2]))


def _of_namespace(kind: str, parts: list[str]) -> NodePath:
    if len(parts) < 2:
        return NodePath(_PARENT)
    # A bundle is named by its borders, as `0x00000000_0xffffffff`; another third part is the namespace after a cluster.
    has_cluster = len(parts) > 2 and not parts[2].startswith("0x")
    return NodePath(kind, "/".join(parts[: 3 if has_cluster else 2]))
