"""DrainingHashes: key hashes with a new owner while the former one has unacknowledged messages (PIP-379).

Law: a message of a draining hash goes to its former owner or to no consumer, until the former owner has acknowledged
all messages of the hash or has left. So the unacknowledged messages of one key are with one consumer at any time.
"""

from __future__ import annotations

from broker.service.consumer import Consumer


class _Draining:
    """A draining hash: its former owner, and its messages pending there."""

    __slots__ = ("blocking", "owner", "pending")

    def __init__(self, owner: Consumer) -> None:
        self.owner = owner
        self.pending = 0
        # True once another consumer was refused a message of the hash, so it must be told when the hash is free.
        self.blocking = False


class DrainingHashes:
    """Pending messages per draining hash; built anew whenever the consumers change."""

    __slots__ = ("_hashes",)

    def __init__(self) -> None:
        self._hashes: dict[int, _Draining] = {}

    def add(self, owner: Consumer, sticky_hash: int) -> None:
        """Counts one unacknowledged message of the former owner."""
        draining = self._hashes.get(sticky_hash)
        if draining is None or draining.owner is not owner:
            draining = self._hashes[sticky_hash] = _Draining(owner)
        draining.pending += 1

    def blocks(self, consumer: Consumer, sticky_hash: int) -> bool:
        """Returns True when `consumer` must wait for the former owner.

        A hash that belongs to its former owner again drains no longer.
        """
        draining = self._hashes.get(sticky_hash)
        if draining is None:
            return False
        if draining.owner is consumer:
            del self._hashes[sticky_hash]
            return False
        draining.blocking = True
        return True

    def settled(self, owner: Consumer, sticky_hash: int) -> bool:
        """Subtracts one message. Returns True when the hash is free now and a consumer waited for it."""
        draining = self._hashes.get(sticky_hash)
        if draining is None or draining.owner is not owner:
            return False
        draining.pending -= 1
        if draining.pending > 0:
            return False
        del self._hashes[sticky_hash]
        return draining.blocking
