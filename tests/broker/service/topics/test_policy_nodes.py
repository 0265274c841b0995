"""Policies of topics that former versions, and Pulsar 5.0, keep in the metadata store become events at a start."""

from __future__ import annotations

import json
from typing import Final

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.service.namespaces.stored_forms import Document, dump
from foundation.value import Json
from tests.fakes.policy_brokers import DOCUMENT, Broker, one_broker


async def test_documents_of_former_versions_become_events_at_the_start() -> None:
    store = MemoryMetadataStore()
    store.another()
    former = Broker(store)
    document: Document = {
        "maxMessageSize": 50,
        "global:maxProducerPerTopic": 7,
        "unackedHoleRedelivery": {"enabled": True, "periodSeconds": 9, "pendingSeconds": 0},
        "maxConsumerPerTopic": "what no broker obeys",
    }
    await store.put(DOCUMENT, dump(document))
    broker = await former.open()
    del document["maxConsumerPerTopic"]
    assert await broker.policies() == document
    found = await store.get(DOCUMENT)
    assert found is not None
    assert json.loads(found.value) == {"unackedHoleRedelivery": document["unackedHoleRedelivery"]}
    assert len(await broker.stored()) == 2
    later = await Broker(store, broker).open()
    assert await later.policies() == document
    assert len(await later.stored()) == 2, "taken over once"


async def test_document_wins_over_the_events_that_its_broker_did_not_obey() -> None:
    broker = await one_broker()
    await broker.set("maxMessageSize", 50)
    await broker.set("maxProducerPerTopic", 2)
    # Also after a crash between an event and the document's removal.
    await broker.stage.environment.metadata.put(DOCUMENT, dump({"maxMessageSize": 60}))
    later = await Broker(broker.stage.environment.metadata, broker).open()
    assert await later.policies() == {"maxMessageSize": 60, "maxProducerPerTopic": 2}
    assert await later.stage.environment.metadata.get(DOCUMENT) is None


async def test_document_that_no_event_can_have_stays_in_force() -> None:
    store = MemoryMetadataStore()
    store.another()
    offload: Json = {"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadedReadPriority": "odd"}
    document: Document = {"maxMessageSize": 50, "offloadPolicies": offload}
    await store.put(DOCUMENT, dump(document))
    broker = await Broker(store).open()
    assert await broker.policies() == document
    assert (await broker.stage.open()).message_bytes_max == 50
    await broker.set("offloadPolicies", None)
    assert await broker.policies() == {"maxMessageSize": 50}
    assert await store.get(DOCUMENT) is None


POLICIES_OF_5_0: Final = (
    b'{"backLogQuotaMap":{"destination_storage":{"limit":5,"limitSize":5,"limitTime":-1,"policy":"producer_exception"}},'
    b'"subscriptionTypesEnabled":["Shared"],"isGlobal":false,"persistence":{"bookkeeperEnsemble":1,"bookkeeperWriteQuorum":1,'
    b'"bookkeeperAckQuorum":1,"managedLedgerMaxMarkDeleteRate":50.0},"maxConsumerPerTopic":3,"delayedDeliveryTickTimeMillis":700,'
    b'"delayedDeliveryEnabled":true,"delayedDeliveryMaxDelayInMillis":0,"subscriptionPolicies":{},"globalPolicies":false,'
    b'"maxConsumerPerTopicSet":true,"publishRateSet":false}'
)
"""JSON as the class of 4.2.4 gives it; that of 5.0 is the same."""


async def test_policies_in_nodes_of_pulsar_5_0_become_events() -> None:
    store, root = MemoryMetadataStore(), "/admin/topic-policies"
    store.another()
    await store.put(f"{root}/local/public/default/persistent/a+b%3Ac", POLICIES_OF_5_0)
    await store.put(f"{root}/global/public/default/persistent/a+b%3Ac", b'{"maxProducerPerTopic":9}')
    await store.put(f"{root}/local/public/default/persistent/bad", b"[]")
    await store.put(f"{root}/local/public/default/persistent/a%2Fb", b"{}")
    await store.put(f"{root}/local/public/default/persistent/odd", b'{"maxConsumerPerTopic":"many"}')
    broker = await Broker(store).open()
    found = await broker.policies("persistent://public/default/a b:c")
    assert found == {
        "backLogQuotaMap": {
            "destination_storage": {
                "limit": 5,
                "limitSize": 5,
                "limitTime": -1,
                "policy": "producer_exception",
            }
        },
        "subscriptionTypesEnabled": ["Shared"],
        "persistence": {
            "bookkeeperEnsemble": 1,
            "bookkeeperWriteQuorum": 1,
            "bookkeeperAckQuorum": 1,
            "managedLedgerMaxMarkDeleteRate": 50.0,
        },
        "maxConsumerPerTopic": 3,
        "delayedDelivery": {"tickTime": 700, "active": True, "maxDeliveryDelayInMillis": 0},
        "global:maxProducerPerTopic": 9,
    }
    left = await store.children(f"{root}/local/public/default/persistent")
    assert left == ["a%2Fb", "bad", "odd"], "what cannot be read stays"
    assert await store.children(f"{root}/global/public/default/persistent") == []
    assert len(await broker.stored()) == 2


async def test_node_of_pulsar_5_0_does_not_replace_an_event() -> None:
    broker = await one_broker()
    await broker.set("maxConsumerPerTopic", 8)
    store = broker.stage.environment.metadata
    await store.put("/admin/topic-policies/local/public/default/persistent/t", POLICIES_OF_5_0)
    later = await Broker(store, broker).open()
    assert await later.policies() == {"maxConsumerPerTopic": 8}
    assert await store.children("/admin/topic-policies/local/public/default/persistent") == []
