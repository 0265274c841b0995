"""TopicName: `domain://tenant/namespace/local`, and the partition that a trailing `-partition-N` names."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from urllib.parse import quote, unquote

from foundation.model.errors import InvalidTopicName

PERSISTENT = "persistent"
NON_PERSISTENT = "non-persistent"
SCALABLE = "topic://"
"""Begins the names of scalable topics of Pulsar 5.0, which do not exist here."""
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]*)")
POLICY_EVENTS = "__change_events"
"""The topic of a namespace with the events that change policies of its topics."""
_SYSTEM_TOPICS = frozenset(
    (
        POLICY_EVENTS,
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_segments",
        "__transaction_buffer_snapshot_indexes",
    )
)
"""Pulsar's names of system topics that any namespace may have."""
_NAME = re.compile(r"[-=:.\w]+", re.ASCII)
"""Characters that Pulsar allows in a tenant or a namespace."""
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
"""Characters that end lines, or that terminals obey."""


NAME_CHARACTERS_MAX = 4096
"""Characters of a full topic name. The cache of parsed names keeps thousands of them."""


@dataclass(frozen=True, slots=True)
class TopicName:
    """A parsed topic name; made by `parse_topic_name`."""

    domain: str
    """`persistent` or `non-persistent`."""
    tenant: str
    """First part of the namespace."""
    namespace_local: str
    """The namespace without its tenant."""
    local: str
    """The topic's own name, with `-partition-N` if it is a partition."""

    @property
    def namespace(self) -> str:
        """`tenant/namespace`, as labels and REST paths name it."""
        return f"{self.tenant}/{self.namespace_local}"

    @property
    def is_persistent(self) -> bool:
        """Entries of the topic are stored in a managed ledger."""
        return self.domain == PERSISTENT

    @property
    def is_system(self) -> bool:
        """True for a topic that belongs to brokers; users neither name nor configure it."""
        return self.namespace == "pulsar/system" or self.base.local in _SYSTEM_TOPICS

    @property
    def has_policy_events(self) -> bool:
        """True for the topic `__change_events` of a namespace, and for a partition of it."""
        return self.local.startswith(POLICY_EVENTS) and self.base.local == POLICY_EVENTS

    @property
    def partition(self) -> int:
        """The partition's number, -1 for a topic that is none."""
        match = self._partition_match()
        return int(match[2]) if match else -1

    @property
    def base(self) -> TopicName:
        """The partitioned topic of a partition, or the topic itself."""
        match = self._partition_match()
        return TopicName(self.domain, self.tenant, self.namespace_local, match[1]) if match else self

    def _partition_match(self) -> re.Match[str] | None:
        # The search first: it costs a tenth of the pattern, and most topics are no partitions.
        return _PARTITION.fullmatch(self.local) if "-partition-" in self.local else None

    def with_partition(self, index: int) -> TopicName:
        """Returns the name of this topic's partition."""
        return TopicName(self.domain, self.tenant, self.namespace_local, f"{self.local}-partition-{index}")

    @property
    def ledger_name(self) -> str:
        """The managed ledger's name, Pulsar's path in the metadata store.

        The last part is percent-encoded, so that any topic name fits.
        """
        return f"{self.tenant}/{self.namespace_local}/{self.domain}/{quote(self.local, safe='')}"

    @staticmethod
    def local_from_ledger_name(last_part: str) -> str:
        """Returns the topic's own name from the last part of `ledger_name`."""
        return unquote(last_part)

    @staticmethod
    def of_ledger_name(name: str) -> TopicName:
        """Returns the topic whose `ledger_name` this is."""
        tenant, namespace, domain, local = name.split("/")
        return TopicName(domain, tenant, namespace, unquote(local))

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace_local}/{self.local}"


def shown(text: str) -> str:
    """Returns the text with its control characters escaped, for errors, logs and terminals."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def check_no_folder(kind: str, name: str) -> None:
    """Raises InvalidTopicName for `.` and `..` as a name that stands in paths of requests.

    Clients and proxies shorten such paths: the deletion of the subscription `..` would become that of its topic.
    """
    if name in (".", ".."):
        raise InvalidTopicName(f"{kind} name is not valid: clients take {name} in a path for a folder")


def check_new_name(kind: str, name: str) -> None:
    """Raises InvalidTopicName for a topic or subscription to be created whose name has control characters, `.` and `..`.

    Pulsar takes them. Control characters would break lines of logs, tables and metrics. A topic that has such a name stays
    usable.
    """
    check_no_folder(kind, name)
    if _CONTROL.search(name):
        raise InvalidTopicName(f"{kind} name {shown(name)} has control characters: leave them out")


def check_new_namespace_part(kind: str, name: str) -> None:
    """Raises InvalidTopicName for a tenant or namespace to be created whose name Pulsar refuses, or no path can have."""
    if not _NAME.fullmatch(name):
        raise InvalidTopicName(f"{kind} name is not valid")
    check_no_folder(kind, name)


# Clients send the same names with each connect, lookup and subscribe.
@functools.lru_cache(maxsize=10_000)
def parse_topic_name(text: str) -> TopicName:
    """Parses a topic name, completing short ones as clients do.

    `x` is persistent://public/default/x, `t/n/x` is persistent://t/n/x. Raises InvalidTopicName.
    """
    if len(text) > NAME_CHARACTERS_MAX:
        raise InvalidTopicName(
            f"Topic name of {len(text)} characters, which begins with {text[:50]!r}: at most"
            f" {NAME_CHARACTERS_MAX} are allowed"
        )
    domain, separator, rest = text.partition("://")
    if not separator:
        return _complete(text)
    if domain not in (PERSISTENT, NON_PERSISTENT):
        raise InvalidTopicName(
            f"Invalid topic domain '{shown(domain)}': persistent or non-persistent is allowed"
        )
    parts = rest.split("/", 2)
    if len(parts) < 3:
        raise InvalidTopicName(f"Invalid topic name {shown(text)}: expected domain://tenant/namespace/topic")
    tenant, namespace, local = parts
    if not local.strip():
        raise InvalidTopicName(f"Invalid topic name {shown(text)}: the topic's own name must not be blank")
    # The old form had the cluster between tenant and namespace.
    if local.count("/") >= 1:
        raise InvalidTopicName(
            f"Topic names with a cluster part are no longer supported, use domain://tenant/namespace/topic: {shown(text)}"
        )
    for part in (tenant, namespace):
        if not _NAME.fullmatch(part):
            raise InvalidTopicName(
                f"Invalid topic name {shown(text)}: '{shown(part)}' has a character that is not allowed"
            )
    # One text for all topics of a tenant, a namespace and a domain.
    domain = PERSISTENT if domain == PERSISTENT else NON_PERSISTENT
    return TopicName(domain, sys.intern(tenant), sys.intern(namespace), local)


def _complete(text: str) -> TopicName:
    parts = text.split("/")
    if len(parts) == 1 and text:
        return parse_topic_name(f"{PERSISTENT}://public/default/{text}")
    if len(parts) == 3:
        return parse_topic_name(f"{PERSISTENT}://{text}")
    raise InvalidTopicName(
        f"Invalid short topic name '{shown(text)}': expected topic or tenant/namespace/topic"
    )
