"""The metadata store of the lives: judges each write and removal of a ledger and of a leaked node."""

from __future__ import annotations

import random
from collections.abc import Callable
from urllib.parse import unquote

from bookkeeper.leaks.quarantine import NODES, node_record_key
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore
from magnetar.snapshot.node_rows import Node
from protocol.ledger_metadata import LedgerMetadata, decode, ledger_key
from tests.sim.metadata import Broken, SharedState, check_step, is_move


class OpenStore(MemoryMetadataStore):
    """A store whose values can be looked at without waiting."""

    def value_of(self, key: str) -> bytes | None:
        found = self._values.get(key)
        return None if found is None else found.value


class LivesState(SharedState):
    """One state for all clients; it sees every version of every ledger."""

    def __init__(self, rng: random.Random, judge: Callable[[int], None]) -> None:
        """`judge` is told of each ledger that is removed, and raises Broken."""
        super().__init__(rng)
        self.store: OpenStore = OpenStore()
        self._judge = judge
        self._ids: dict[str, int] = {}
        self._versions: dict[str, LedgerMetadata] = {}
        self._gone: set[str] = set()
        self.moves = 0
        self.leaked: set[str] = set()
        """Nodes that nothing refers to any more; each goes only when it has a copy."""
        self.exported: Callable[[str], bool] = lambda _: False
        """Tells whether a whole copy of a node is in a file."""

    def written(self, key: str, value: bytes) -> None:
        if key in self._gone:
            raise Broken(f"a deleted ledger is there again: {key}")
        if not key.startswith("/ledgers/") or not value.startswith(b"BookieMetadataFormatVersion"):
            return
        new = decode(value)
        old = self._versions.get(key)
        if old is not None and is_move(old, new):
            self.moves += 1
        elif old is not None:
            check_step(old, new)
        self._versions[key] = new

    def known(self, ledger_id: int) -> None:
        """A client was told of this ledger."""
        self._ids[ledger_key(ledger_id)] = ledger_id

    def removed(self, key: str) -> None:
        self._check_leak(key)
        if key in self._versions:
            del self._versions[key]
            self._gone.add(key)
            if key in self._ids:
                self._judge(self._ids[key])

    def _check_leak(self, key: str) -> None:
        if key in self.leaked and self.value_of(node_record_key(key)) is None:
            raise Broken(f"{key} went without a copy in quarantine")
        subject = unquote(key.removeprefix(f"{NODES}/"))
        copied = self.value_of(subject) is not None or self.exported(subject)
        if subject in self.leaked and subject != key and not copied:
            raise Broken(f"the copy of {subject} in quarantine was deleted without an export")

    def value_of(self, key: str) -> bytes | None:
        """Returns the value of this moment."""
        return self.store.value_of(key)

    async def nodes(self) -> list[Node]:
        """Returns all nodes as of this moment."""
        return await walk(self.store)


async def walk(store: MetadataStore, key: str = "") -> list[Node]:
    """Reads all nodes, one after the other, as a reader of ZooKeeper does: each is as of its own moment."""
    found: list[Node] = []
    if key and (value := await store.get(key)) is not None:
        found.append(Node(key, value.value, value.version, None, None))
    for name in await store.children(key or "/"):
        found += await walk(store, f"{key}/{name}")
    return found
