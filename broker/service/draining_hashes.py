"""DrainingHashes: key hashes that changed hands while messages of theirs are unacknowledged (PIP-379).

Until the former owner has acknowledged or lost all of them, nobody else may receive a message of the hash;
so at any time the unacknowledged messages of one key are with one consumer only.
"""

from __future__ import annotations

from broker.service.consumer import Consumer


class _Draining:
    __slots__ = ("blocking", "owner", "pending")

    def __init__(self, owner: Consumer) -> None:
        self.owner = owner
        self.pending = 0
        self.blocking = False


class DrainingHashes:
    __slots__ = ("_hashes",)

    def __init__(self) -> None:
        self._hashes: dict[int, _Draining] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, owner: Consumer, sticky_hash: int) -> None:
        """One more unacknowledged message of `owner` under a hash that belongs to another consumer now."""
        draining = self._hashes.get(sticky_hash)
        if draining is None or draining.owner is not owner:
            draining = self._hashes[sticky_hash] = _Draining(owner)
        draining.pending += 1

    def blocks(self, consumer: Consumer, sticky_hash: int) -> bool:
        """Whether `consumer` must wait. A hash that came back to its owner drains no longer."""
        draining = self._hashes.get(sticky_hash)
        if draining is None:
            return False
        if draining.owner is consumer:
            del self._hashes[sticky_hash]
            return False
        draining.blocking = True
        return True

    def settled(self, owner: Consumer, sticky_hash: int) -> bool:
        """A message is pending no longer. True when the hash is free now and somebody waited for it."""
        draining = self._hashes.get(sticky_hash)
        if draining is None or draining.owner is not owner:
            return False
        draining.pending -= 1
        if draining.pending > 0:
            return False
        del self._hashes[sticky_hash]
        return draining.blocking

    def forget(self, owner: Consumer) -> bool:
        """The owner left. True when somebody waited for one of its hashes."""
        gone = [sticky_hash for sticky_hash, draining in self._hashes.items() if draining.owner is owner]
        waited = [self._hashes.pop(sticky_hash).blocking for sticky_hash in gone]
        return any(waited)
