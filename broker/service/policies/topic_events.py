"""The events that change policies of topics, as Apache Pulsar 4.2 keeps them in `__change_events`. Pure.

    key        the topic's full name; `__G__` before it for the global policies
    payload    PulsarEvent with all policies of the topic (`pulsar_event.py`); none deletes the policies of the key

The latest event of each key counts. The fields of an event are those of Pulsar's `TopicPolicies`; a document has the keys of
the admin interface. Fields that no key stands for stay in the event when another one changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from broker.schemas.avro_schema import AvroType, parse_avro
from broker.service.namespaces.namespaces import GLOBAL
from broker.service.namespaces.stored_forms import Document
from broker.service.policies.effective_policies import SUBSCRIPTION_POLICIES
from broker.service.policies.forms import PolicyRefused
from broker.service.policies.pulsar_event import EVENT_SCHEMA
from broker.service.policies.table import BACKLOG, DELAYED, POLICIES, Policy
from foundation.model.errors import InvalidTopicName
from foundation.model.topic_name import POLICY_EVENTS, TopicName, parse_topic_name
from foundation.value import Json

EVENT_TYPE: Final = parse_avro(EVENT_SCHEMA.data)
"""The type of the events that Magnetar writes."""
_GLOBAL_KEY: Final = "__G__"
_EMPTY: Final[Mapping[str, Json]] = {
    BACKLOG.topic_name: {},
    SUBSCRIPTION_POLICIES: {},
    "subscriptionTypesEnabled": [],
}
"""Fields that are not null without a value."""
_DELAYED: Final = {
    "active": "delayedDeliveryEnabled",
    "tickTime": "delayedDeliveryTickTimeMillis",
    "maxDeliveryDelayInMillis": "delayedDeliveryMaxDelayInMillis",
}
"""Members of the value of delayed delivery, and the field of each."""
_NAMES: Final = {"subscriptionExpirationTime": "subscriptionExpirationTimeInMinutes"}
"""Keys whose field has another name."""
_WITHOUT_FORM: Final = (SUBSCRIPTION_POLICIES, "replicationClusters")
"""Keys that are no rows of the table of policies."""
_OWN: Final = frozenset(("unackedHoleRedelivery",))
"""Keys of policies that Pulsar does not have."""
_FORMS: Final[Mapping[str, Policy[Any] | None]] = {
    **{one.topic_name: one for one in POLICIES if one.topic_name and one.topic_name not in _OWN},
    **dict.fromkeys(_WITHOUT_FORM),
}
"""All keys that an event has, with the row of the table."""


class EventKey(NamedTuple):
    """The topic of an event, and its scope."""

    topic: str
    """Full name, without partition."""
    is_global: bool
    """True for the policies that Pulsar copies to other clusters."""

    @property
    def text(self) -> str:
        """The key of the message."""
        return _GLOBAL_KEY + self.topic if self.is_global else self.topic


class PolicyChange(NamedTuple):
    """An event of one topic, as it was read."""

    key: EventKey
    """The topic."""
    fields: dict[str, Json] | None
    """Its policies; None deletes them."""
    replaces: bool = True
    """False for one that counts only where the topic has none."""


def is_in_events(key: str) -> bool:
    """Returns True for a key of a topic's document that has a place in events; else it is Magnetar's own."""
    return key.removeprefix(GLOBAL) in _FORMS


def document_of(fields: Mapping[str, Json], *, is_global: bool) -> Document:
    """Returns the policies that are set, by the keys of a topic's document."""
    found: Document = {}
    for key, policy in _FORMS.items():
        value = _value(fields, key)
        if value in (None, {}, []):
            continue
        if policy is not None:
            # One that is refused is kept as it is: `EffectivePolicies` says that it has no effect.
            with contextlib.suppress(PolicyRefused):
                value = policy.form.write(policy.form.read(value))
        found[(GLOBAL if is_global else "") + key] = value
    return found


def _value(fields: Mapping[str, Json], key: str) -> Json:
    if key == DELAYED.topic_name:
        members = {member: fields.get(field) for member, field in _DELAYED.items()}
        return None if set(members.values()) == {None} else {**members}
    return fields.get(_NAMES.get(key, key))


def no_policies(*, is_global: bool) -> dict[str, Json]:
    """Returns the fields of a topic without policies."""
    return {**_EMPTY, "isGlobal": is_global}


def fields_of_json(value: Json, *, is_global: bool) -> dict[str, Json]:
    """Returns the fields that Pulsar's JSON of `TopicPolicies` has, without members that no event has. ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"an object is expected, not {type(value).__name__}")
    fields = {one: value[one] for one in _fields_of(EVENT_TYPE) if value.get(one) is not None}
    return {**no_policies(is_global=is_global), **fields, "isGlobal": is_global}


def with_value(fields: Mapping[str, Json], key: str, value: Json) -> dict[str, Json]:
    """Returns the fields with another value of a document's key, None = none. Raises PolicyRefused for a wrong one."""
    key = key.removeprefix(GLOBAL)
    policy = _FORMS[key]
    if value is not None and policy is not None:
        value = policy.form.write(policy.form.read(value))
    if key == DELAYED.topic_name:
        members = cast("Document", value or {})
        return {**fields, **{field: members.get(member) for member, field in _DELAYED.items()}}
    if value is None:
        value = _EMPTY.get(key)
    elif key == BACKLOG.topic_name:
        value = {
            kind: _whole_quota(cast("Document", quota)) for kind, quota in cast("Document", value).items()
        }
    return {**fields, _NAMES.get(key, key): value}


def _whole_quota(quota: Document) -> Document:
    # Numbers of Java that are never null; -1 is no limit.
    return {"limit": quota.get("limitSize", -1), "limitTime": -1, **quota}


def has_fields(kind: AvroType, fields: Mapping[str, Json]) -> bool:
    """Returns True where the type of an event has a place for each of the policies that is set."""
    names = _fields_of(kind)
    return all(name in names for name, value in fields.items() if value is not None)


def _fields_of(kind: AvroType) -> list[str]:
    """Returns the names of all policies that the type of an event has."""
    for name in ("topicPoliciesEvent", "policies"):
        kind = next((field.type for field in kind.fields if field.name == name), kind)
        kind = next((branch for branch in kind.branches if branch.kind == "record"), kind)
    return [field.name for field in kind.fields]


def event_of(key: EventKey, fields: Mapping[str, Json], cluster: str) -> Json:
    """Returns the event that sets the policies of a topic."""
    name = parse_topic_name(key.topic)
    return {
        "actionType": "UPDATE",
        "eventType": "TOPIC_POLICY",
        # Policies of this cluster are not copied to others.
        "replicateTo": None if key.is_global else [cluster],
        "topicPoliciesEvent": {
            "domain": name.domain,
            "tenant": name.tenant,
            "namespace": name.namespace_local,
            "topic": name.local,
            "policies": dict(fields),
        },
    }


def change_of(key: str, event: Json, namespace: str) -> PolicyChange | None:
    """Returns the change that a message makes, `event` None for a message without payload; None where it makes none.

    So an event that names a topic of another namespace changes nothing: whoever may write here has no rights there.
    """
    try:
        if event is None:
            text = key.removeprefix(_GLOBAL_KEY)
            return _in_namespace(
                PolicyChange(EventKey(str(parse_topic_name(text).base), text != key), None), namespace
            )
        if not isinstance(event, dict) or event.get("eventType") != "TOPIC_POLICY":
            return None
        named = event.get("topicPoliciesEvent")
        if not isinstance(named, dict):
            return None
        policies = named.get("policies")
        parts = (named.get("domain"), named.get("tenant"), named.get("namespace"), named.get("topic"))
        topic = "{}://{}/{}/{}".format(*parts)
        fields = policies if isinstance(policies, dict) else None
        found = EventKey(
            str(parse_topic_name(topic).base), fields is not None and fields.get("isGlobal") is True
        )
    except InvalidTopicName:
        return None
    action = event.get("actionType")
    if action == "DELETE":
        return _in_namespace(PolicyChange(found, None), namespace)
    if action not in ("INSERT", "UPDATE") or fields is None:
        return None
    return _in_namespace(PolicyChange(found, fields, replaces=action == "UPDATE"), namespace)


def _in_namespace(change: PolicyChange, namespace: str) -> PolicyChange | None:
    return change if parse_topic_name(change.key.topic).namespace == namespace else None


def events_topic(namespace: str) -> TopicName:
    """Returns the name of the topic with the events of a namespace."""
    return parse_topic_name(f"persistent://{namespace}/{POLICY_EVENTS}")


def partition_of(key: str, partitions: int) -> int:
    """Returns the partition that a client of Pulsar's chooses for a key: that of Java's hash."""
    number = 0
    for unit in memoryview(key.encode("utf-16-le")).cast("H"):
        number = (31 * number + unit) & 0xFFFFFFFF
    return (number & 0x7FFFFFFF) % partitions
