"""Quarantine of nodes that change between the look and the move."""

from __future__ import annotations

from pathlib import Path

from bookkeeper.leaks.quarantine import ledger_record_key, node_record_key
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from magnetar.audit.facts import gather, judge
from magnetar.audit.quarantine import delete, export, put_in
from magnetar.snapshot.node_rows import Node
from protocol.ledger_metadata import ledger_key

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


async def test_record_of_a_ledger_that_is_gone_does_not_stop_the_others(tmp_path: Path) -> None:
    store = MemoryMetadataStore()
    for ledger_id in (7, 8):
        await store.put(ledger_record_key(ledger_id), b'{"since":1,"reason":"orphan"}')
    await store.put(ledger_key(8), b"of a closed ledger")

    def ask(method: str, path: str) -> object:
        # The broker's answer for a ledger without metadata is 404, which is a CommandError.
        assert "/8" in path
        return {"last": 0, "entries": ["AA=="]}

    # A crash came between the deletion of ledger 7 and that of its record.
    assert await delete(store, tmp_path, ask) == [
        "7 is gone",
        f"8 stays: {tmp_path / 'ledger-8.json'} is missing; export it first",
    ]
    assert await store.get(ledger_record_key(7)) is None
    await store.put(ledger_record_key(7), b'{"since":1,"reason":"orphan"}')
    assert await export(store, tmp_path, ask) == 1
    assert await delete(store, tmp_path, ask) == ["8 deleted"]
