"""Quarantine of nodes that change between the look and the move."""

from __future__ import annotations

from broker.metadata.memory_metadata_store import MemoryMetadataStore
from leaks.quarantine import node_record_key
from magnetar.audit.facts import gather, judge
from magnetar.audit.quarantine import put_in
from magnetar.snapshot.node_rows import Node

CURSOR = "/managed-ledgers/public/default/persistent/t/s"
POLICIES = ("/admin/policies/public", "/admin/policies/public/default")


async def test_node_that_changed_since_the_look_stays() -> None:
    store = MemoryMetadataStore()
    await store.put(CURSOR, b'{"markDelete":[1,2]}')
    nodes = [Node(path, b"{}", 0, None, None) for path in POLICIES]
    nodes.append(Node(CURSOR, b'{"markDelete":[1,2]}', 0, None, None))
    (found,) = judge(gather(nodes))
    # A client has made the topic anew, and its subscription goes on.
    await store.put(CURSOR, b'{"markDelete":[7,8]}')
    assert await put_in(store, found) == "was changed meanwhile and stays"
    assert await store.get(CURSOR) is not None
    assert await store.get(node_record_key(CURSOR)) is None


async def test_node_as_it_was_judged_is_moved() -> None:
    store = MemoryMetadataStore()
    await store.put(CURSOR, b'{"markDelete":[1,2]}')
    nodes = [Node(path, b"{}", 0, None, None) for path in POLICIES]
    nodes.append(Node(CURSOR, b'{"markDelete":[1,2]}', 0, None, None))
    (found,) = judge(gather(nodes))
    assert await put_in(store, found) == "moved into quarantine"
    assert await store.get(CURSOR) is None
