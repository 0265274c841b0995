"""Events of topic policies, against those that Apache Pulsar 4.2.4 wrote and the schema that it registered."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest

from broker.schemas.decoding import decode_avro
from broker.schemas.encoding import encode
from broker.service.namespaces.stored_forms import Document
from broker.service.policies.forms import PolicyRefused
from broker.service.policies.pulsar_event import EVENT_SCHEMA
from broker.service.policies.topic_events import (
    EVENT_TYPE,
    EventKey,
    PolicyChange,
    change_of,
    document_of,
    event_of,
    has_fields,
    is_in_events,
    no_policies,
    partition_of,
    with_value,
)

DATA: Final = Path(__file__).parents[3] / "data/topic_policies"
RECORDED: Final[list[dict[str, Any]]] = [
    json.loads(line) for line in (DATA / "events.jsonl").read_text().splitlines()
]
TOPIC: Final = "persistent://t/n/x"
KEY: Final = EventKey(TOPIC, False)


def test_schema_has_the_bytes_that_apache_registers() -> None:
    assert (DATA / "schema.avsc").read_bytes() == EVENT_SCHEMA.data
    assert EVENT_SCHEMA.properties == {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}


@pytest.mark.parametrize("recorded", RECORDED)
def test_recorded_event_is_read_and_written_to_the_byte(recorded: dict[str, Any]) -> None:
    payload = base64.b64decode(recorded["payload"])
    event = decode_avro(EVENT_TYPE, payload) if payload else None
    namespace = recorded["key"].partition("://")[2].rpartition("/")[0]
    change = change_of(recorded["key"], event, namespace)
    assert change is not None
    assert change.key.text == recorded["key"]
    if event is None:
        assert change.fields is None
        return
    assert encode(EVENT_TYPE, event) == payload
    # From the policies alone, as a request of the admin interface gives them.
    assert change.fields is not None
    fields = no_policies(is_global=change.key.is_global)
    document = document_of(change.fields, is_global=change.key.is_global)
    for key, value in document.items():
        fields = with_value(fields, key, value)
    # A set: the order is that of the request.
    fields["subscriptionTypesEnabled"] = change.fields["subscriptionTypesEnabled"]
    assert encode(EVENT_TYPE, event_of(change.key, fields, recorded["cluster"])) == payload


def test_every_policy_of_apache_has_its_key() -> None:
    """All that a request to Apache can set on a topic, in one event."""
    event = decode_avro(EVENT_TYPE, base64.b64decode(RECORDED[9]["payload"]))
    change = change_of("", event, "public/default")
    assert change is not None
    assert change.fields is not None
    document = document_of(change.fields, is_global=False)
    assert document["subscriptionExpirationTime"] == 12
    assert document["delayedDelivery"] == {"active": True, "tickTime": 2000, "maxDeliveryDelayInMillis": 0}
    assert document["schemaCompatibilityStrategy"] == "BACKWARD"
    assert document["autoSubscriptionCreationOverride"] == {"allowAutoSubscriptionCreation": False}
    empty = {name for name, value in change.fields.items() if value is None}
    assert empty == {"entryFilters", "shadowTopics"}
    assert len(document) == len(change.fields) - len(empty) - len({"isGlobal"}) - 2, (
        "three fields are one key"
    )


def test_removed_value_leaves_the_fields_as_they_were_before() -> None:
    for key, value in {
        "maxProducerPerTopic": 3,
        "backLogQuotaMap": {"message_age": {"limitTime": 5}},
        "delayedDelivery": {"active": True, "tickTime": 1},
        "subscriptionTypesEnabled": ["Shared"],
        "global:subscriptionPolicies": {"s": {"dispatchRate": None}},
    }.items():
        fields = no_policies(is_global=False)
        assert with_value(fields, key, value)  # type: ignore[arg-type]
        without = with_value(with_value(fields, key, value), key, None)  # type: ignore[arg-type]
        assert encode(EVENT_TYPE, event_of(KEY, without, "c")) == encode(
            EVENT_TYPE, event_of(KEY, fields, "c")
        )


def test_fields_without_a_key_stay() -> None:
    fields: Document = {**no_policies(is_global=False), "shadowTopics": ["persistent://t/n/shadow"], "new": 1}
    changed = with_value(fields, "maxProducerPerTopic", 3)
    assert (changed["shadowTopics"], changed["new"]) == (["persistent://t/n/shadow"], 1)
    assert has_fields(EVENT_TYPE, {"shadowTopics": [], "gone": None})
    assert not has_fields(EVENT_TYPE, {"new": 1})


def test_own_policy_is_not_in_events() -> None:
    assert not is_in_events("unackedHoleRedelivery")
    assert not is_in_events("global:unackedHoleRedelivery")
    assert is_in_events("global:retentionPolicies")


def test_value_of_another_type_is_refused() -> None:
    with pytest.raises(PolicyRefused):
        with_value({}, "maxProducerPerTopic", "many")


@pytest.mark.parametrize(
    ("key", "event"),
    [
        ("no topic", None),
        (TOPIC, {"eventType": "TRANSACTION_BUFFER_SNAPSHOT"}),
        (TOPIC, {"eventType": "TOPIC_POLICY", "topicPoliciesEvent": None}),
        (TOPIC, "text"),
        ("persistent://t/other/x", None),
    ],
)
def test_message_that_is_no_event_of_the_namespace_changes_nothing(key: str, event: Any) -> None:
    assert change_of(key, event, "t/n") is None


def test_event_of_another_namespace_changes_nothing() -> None:
    event = event_of(KEY, {**no_policies(is_global=False), "maxProducerPerTopic": 1}, "c")
    assert change_of(TOPIC, event, "t/n") is not None
    assert change_of(TOPIC, event, "t/other") is None


def test_actions_of_events() -> None:
    event = event_of(KEY, no_policies(is_global=False), "c")
    assert isinstance(event, dict)
    found = {
        action: change_of("", {**event, "actionType": action}, "t/n")
        for action in ("INSERT", "DELETE", "NONE")
    }
    insert = found["INSERT"]
    assert insert is not None
    assert not insert.replaces
    assert found["DELETE"] == PolicyChange(KEY, None)
    assert found["NONE"] is None


def test_deletions_name_their_scope_by_the_key() -> None:
    assert change_of(TOPIC, None, "t/n") == PolicyChange(KEY, None)
    assert change_of(f"__G__{TOPIC}", None, "t/n") == PolicyChange(EventKey(TOPIC, True), None)


def test_partition_of_a_key_is_that_of_javas_hash() -> None:
    assert partition_of("é", 100) == 33
    assert partition_of("ab", 10_000) == 97 * 31 + 98
    # Its hash in Java is the smallest int, of which the sign is taken off.
    assert partition_of("polygenelubricants", 7) == 0
