"""MetadataStore: versioned values under keys that look like paths. Pulsar's name: MetadataStore.

The laws that every store obeys:

1. A key is a path (`/managed-ledgers/public/default/persistent/orders`), a value has at least one byte.
2. Each successful put adds one to the key's version. A fresh key has version 0, or more where the store already had to
   keep a node for the keys below it.
3. A write returns when it would survive a crash of the machine, except in memory.
4. Writes are applied in the order of the calls, many per commit, so waiting for the last of several is enough. In
   ZooKeeper a write of ephemeral keys does not wait for earlier writes of other keys: a lease must not wait for cursors.
5. An ephemeral key is removed when the session that made it ends: when its process stops or dies, or is cut off from
   ZooKeeper for longer than the session's timeout. A key stays what it was made as, whatever is put later.
6. A watch tells that its key may have changed since, not how: the watcher reads, and the newest value is what counts. It
   also tells after each interruption of the session, in which a change may have passed unnoticed.
7. A deletion, and a write with a Check, is made in the session in which it was asked, or not at all: once that session has
   ended it raises MetadataError. So a process that has lost a lease removes nothing of the next holder, and does not take
   the next holder's key, which may have the same version, for its own.

Four stores: SQLite for a broker alone, the same file through a server for several processes of one machine, ZooKeeper for
several machines, a dictionary for `--memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Versioned(NamedTuple):
    """A value and the version that a compare-and-set needs."""

    value: bytes
    """At least one byte."""
    version: int
    """Goes up by one with each put."""


ABSENT = -1
"""As `expected`: the key must not exist yet."""


class Put(NamedTuple):
    """A write of several that belong together."""

    key: str
    """A path."""
    value: bytes
    """At least one byte."""
    expected: int
    """A version, or ABSENT."""


class Ephemeral(NamedTuple):
    """A key that `put_all` makes and that ends with the session. It must not exist; later puts change its value alone."""

    key: str
    """A path; no key is below it."""
    value: bytes
    """At least one byte."""

    @property
    def expected(self) -> int:
        """Always ABSENT."""
        return ABSENT


class Check(NamedTuple):
    """A condition of `put_all`: writes are only made while another key has the version."""

    key: str
    """A path."""
    expected: int
    """A version; never ABSENT."""


Write = Put | Ephemeral | Check
"""A part of `put_all`."""

Lease = Callable[[], Check]
"""Returns the condition that a lease still stands, for a write that is asked at once: the session may end during a wait.
Raises MetadataError where the lease is not there."""


class SessionState(StrEnum):
    """News of the session with the store. Pulsar's name: SessionEvent."""

    SUSPENDED = "suspended"
    """The store does not answer; ephemeral keys may be gone, which only an answer can tell."""
    CONNECTED = "connected"
    """The store answers again, in the same session: ephemeral keys are there."""
    LOST = "lost"
    """The session has ended, and every ephemeral key of it: another process may have them."""
    RE_ESTABLISHED = "re-established"
    """A new session has begun; its owner makes its ephemeral keys again."""


Stop = Callable[[], None]
"""Ends a watch; a second call does nothing."""


VALUE_BYTES_MAX = 100_000_000
"""Bytes of a value where the store itself sets no lower limit: a tenth of what SQLite can keep."""


class MetadataStore(Protocol):
    """The store of everything that must outlive the process.

    Calls raise MetadataError when the store fails; a write was then perhaps carried out. So was one with BadVersion, if
    others write the key too: the answer to the first attempt was lost, and another writer came before the second.
    """

    @property
    def value_bytes_max(self) -> int:
        """Bytes of the largest value that `put` accepts."""
        ...

    @property
    def is_shared(self) -> bool:
        """True where another process may write, perhaps a broker of Apache's: positions and schemas then go to ledgers."""
        ...

    async def get(self, key: str) -> Versioned | None:
        """Returns the value; None for a key that does not exist."""
        ...

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """Writes the value; returns its new version. Raises BadVersion when `expected` is another; None does not
        compare.
        """
        ...

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        """Writes all values, of different keys, or none.

        Returns the version of each key afterwards. Raises BadVersion.
        """
        ...

    async def delete(self, key: str, expected: int | None = None) -> None:
        """Removes the key. A missing one is fine unless `expected` names a version; then raises BadVersion."""
        ...

    async def children(self, key: str) -> list[str]:
        """Returns the names one level below `key`, sorted, each once, without slashes."""
        ...

    async def sync(self) -> None:
        """Returns when reads show every write that any process had finished before this call."""
        ...

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        """Calls `changed` on the loop after every change of the key's value, made here or by another process.

        Several changes may be one call. A call may come without a change.
        """
        ...

    async def watch_children(self, key: str, changed: Callable[[], None]) -> Stop:
        """Calls `changed` as `watch` does, after names below the key were added or removed."""
        ...

    def listen(self, told: Callable[[SessionState], None]) -> None:
        """Calls `told` on the loop at each news of the session, from now on; a store in the process has no news."""
        ...

    async def close(self) -> None:
        """Finishes the writes that wait; later ones raise MetadataError."""
        ...
