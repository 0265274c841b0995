"""Intents: the deletions that were decided and may not be finished, in the metadata store.

    /admin/deletions/<kind>/<quoted name>    {"decided": 1700000000000, "owner": "5a…", "partitions": 3, "schema": true}
    /admin/deletion-owners/<owner>           ephemeral: this owner lives

An intent is written in one transaction with the mark that forbids the use of the deleted thing (`Deletions`), and it is
removed last. So the store has an intent for everything that is half deleted, and a start reads a few small keys instead of
searching the whole store.

Of the brokers on one store one carries an intent out: its owner, a name that a broker takes for each session with the store.
Another broker takes an intent over when the owner's key is gone, by the intent's version, so only one does. The former owner
learns of it by the end of its session, which ends its steps at once, or when it cannot remove the intent, whose version has
changed. Its deletions that are out end with the session (law 7 of `MetadataStore`), so none of them removes what was made
anew after the other broker had finished.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Final
from urllib.parse import quote, unquote

from bookkeeper.metadata.metadata_store import (
    ABSENT,
    Check,
    Ephemeral,
    MetadataStore,
    Put,
    SessionState,
    Write,
)
from foundation.loop.uninterrupted import uninterrupted
from foundation.model.errors import BadVersion, MetadataError, ServiceNotReady
from foundation.value import Value

ROOT: Final = "/admin/deletions"
"""Path in the metadata store; Magnetar's own, Pulsar has no such key."""
OWNERS: Final = "/admin/deletion-owners"
"""Below it an ephemeral key for each session that has decided or taken over a deletion."""


class DeletedKind(StrEnum):
    """The things that are deleted with all that belongs to them."""

    TOPIC = "topic"
    """A topic without partitions, or one partition; by its full name."""
    PARTITIONED = "partitioned"
    """A partitioned topic with its partitions; by its full name."""
    NAMESPACE = "namespace"
    """A namespace with its topics; `tenant/namespace`."""
    TENANT = "tenant"
    """A tenant with its namespaces; its name."""


class Intent(Value):
    """One decided deletion."""

    kind: DeletedKind
    """The kind of the deleted thing."""
    name: str
    """Its name, see `DeletedKind`."""
    decided_ms: int
    """When it was decided, ms since 1970."""
    partitions: int = 0
    """Partitions of a partitioned topic."""
    schema: bool = False
    """The schema goes too; False for a partition, and where the other domain has a topic of the name."""
    marked: bool = False
    """The metadata of the partitioned topic has the mark too; earlier versions did not set it."""
    owner: str = ""
    """The session that carries it out; empty = none, as earlier versions write it."""

    @property
    def key(self) -> str:
        """Its key in the metadata store."""
        return f"{ROOT}/{self.kind}/{quote(self.name, safe='')}"

    def encode(self) -> bytes:
        """Returns the stored value."""
        value: dict[str, int | bool | str] = {"decided": self.decided_ms}
        if self.partitions:
            value["partitions"] = self.partitions
        if self.schema:
            value["schema"] = True
        if self.marked:
            value["marked"] = True
        if self.owner:
            value["owner"] = self.owner
        return json.dumps(value, separators=(",", ":")).encode()


def decode_intent(kind: DeletedKind, name: str, value: bytes) -> Intent:
    """Returns the intent of a stored value. MetadataError for other bytes."""
    try:
        found = json.loads(value)
        return Intent(
            kind,
            name,
            int(found["decided"]),
            int(found.get("partitions", 0)),
            bool(found.get("schema")),
            bool(found.get("marked")),
            str(found.get("owner", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataError(f"the intent to delete {kind} {name} cannot be read: {error!r}") from error


class Intents:
    """The stored intents, all of them in memory after the first `refresh`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.pending: dict[tuple[DeletedKind, str], Intent] = {}
        """Decided and not finished, by kind and name: those of this broker, and others as of the last `refresh`.

        Also those of this broker whose decision was perhaps stored, until the store tells.
        """
        self._versions: dict[tuple[DeletedKind, str], int] = {}
        """Of the intents that this session owns."""
        self._owner = ""
        """Name of this session as an owner; empty before its first intent."""
        self._ended = 0
        """Sessions that have ended."""
        self._tried: set[str] = set()
        """Names under which this broker may have stored an intent without learning of it, also in a later session."""
        self._working: dict[asyncio.Task[object], bool] = {}
        """The tasks with steps of owned intents; True once their session has ended."""
        store.listen(self._session_changed)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            # The owner's key is gone, and other brokers may go on with these deletions.
            self._owner = ""
            self._ended += 1
            self._versions.clear()
            for task in self._working:
                self._working[task] = True
                task.cancel()

    async def refresh(self) -> None:
        """Reads the intents of other brokers, and of earlier ones. Raises MetadataError."""
        await self._store.sync()
        for kind in DeletedKind:
            names = {unquote(quoted) for quoted in await self._store.children(f"{ROOT}/{kind}")}
            for name in names:
                if (kind, name) not in self._versions:
                    await self._read(kind, name)
            for key in [key for key in self.pending if key[0] is kind and key[1] not in names]:
                if key not in self._versions:
                    del self.pending[key]

    async def _read(self, kind: DeletedKind, name: str) -> int:
        """Takes over what is stored of an intent; returns its version."""
        found = await self._store.get(f"{ROOT}/{kind}/{quote(name, safe='')}")
        if (kind, name) in self._versions:  # Taken over meanwhile.
            return ABSENT if found is None else found.version
        if found is None:
            self.pending.pop((kind, name), None)
            return ABSENT
        self.pending[kind, name] = decode_intent(kind, name, found.value)
        return found.version

    async def read_again(self, keys: Iterable[tuple[DeletedKind, str]]) -> None:
        """Asks the store for those of the pending intents that another broker may have finished. Raises MetadataError."""
        for key in keys:
            pending = self.pending.get(key)
            if pending is None or key in self._versions:
                continue
            await self._store.sync()
            # Another task may have taken it over meanwhile.
            if await self._store.get(pending.key) is None and self.pending.get(key) is pending:
                del self.pending[key]

    def has(self, kind: DeletedKind, name: str) -> bool:
        """Returns True while the deletion is decided and not finished."""
        return (kind, name) in self.pending

    async def decide(self, intent: Intent, store: Callable[[tuple[Write, ...]], Awaitable[object]]) -> Intent:
        """Stores a new intent by `store`, which makes the given writes in one transaction with a mark; returns it.

        ServiceNotReady when another broker has decided the same; MetadataError.
        """
        intent, ended = replace(intent, owner=self._name()), self._ended
        try:
            await store((Put(intent.key, intent.encode(), ABSENT), self._alive(intent.owner)))
        except BadVersion as mismatch:
            await self._look_after_owner()
            await self.refresh()
            raise _elsewhere(intent) from mismatch
        except MetadataError:
            # Perhaps it is stored, and then a later `resume` carries it out. Whatever came into use until then would go too.
            self.pending[intent.kind, intent.name] = intent
            raise
        self._owned(intent, 0, ended)
        return intent

    async def decide_alone(self, intent: Intent) -> Intent:
        """Stores a new intent without a mark. Raises as `decide`."""
        return await self.decide(intent, self._store.put_all)

    async def is_stored(self, intent: Intent) -> bool:
        """Asks the store whether a pending intent is there. Raises MetadataError."""
        key = intent.kind, intent.name
        if key in self._versions:
            return True
        await self._store.sync()
        return await self._read(*key) != ABSENT

    async def own(self, intent: Intent) -> Intent:
        """Returns the intent, taken over from a broker that is gone if need be.

        ServiceNotReady while another broker carries it out, and when it is finished; MetadataError.
        """
        key = intent.kind, intent.name
        if key in self._versions:
            return self.pending[key]
        await self._store.sync()
        version = await self._read(*key)
        stored = self.pending.get(key)
        if stored is None:
            raise _elsewhere(intent)
        # One of this broker's own names may live on in its session, and nobody else would ever go on with it.
        is_own = not stored.owner or stored.owner in self._tried
        if not is_own and await self._store.get(f"{OWNERS}/{stored.owner}"):
            raise _elsewhere(intent)
        taken, ended = replace(stored, owner=self._name()), self._ended
        try:
            await self._store.put_all((Put(taken.key, taken.encode(), version), self._alive(taken.owner)))
        except BadVersion as mismatch:
            await self._look_after_owner()
            raise _elsewhere(intent) from mismatch
        self._owned(taken, version + 1, ended)
        return taken

    async def _look_after_owner(self) -> None:
        # The answer to a write of an ended session may come after the news of its end.
        if self._owner and await self._store.get(f"{OWNERS}/{self._owner}") is None:
            self._session_changed(SessionState.LOST)

    def _name(self) -> str:
        # Imported for a deletion alone: the module takes 3 ms, which a start must not pay for.
        from uuid import uuid4

        name = self._owner or uuid4().hex
        self._tried.add(name)
        return name

    def _alive(self, owner: str) -> Write:
        """Returns the part of a transaction that makes the owner's key, or sees that it is still there."""
        key = f"{OWNERS}/{owner}"
        return Check(key, 0) if self._owner else Ephemeral(key, b"1")

    def _owned(self, intent: Intent, version: int, ended: int) -> None:
        """Notes an answer; `ended` is `_ended` as of the question."""
        self.pending[intent.kind, intent.name] = intent
        if ended != self._ended:
            # The write was made in a session that has ended: another broker may have finished the deletion by now.
            raise _elsewhere(intent)
        self._owner = intent.owner
        self._versions[intent.kind, intent.name] = version

    @asynccontextmanager
    async def while_owned(self, intent: Intent) -> AsyncIterator[None]:
        """Ends the body with ServiceNotReady as soon as the session ends, in which this broker owns the intent."""
        if (intent.kind, intent.name) not in self._versions:
            raise _elsewhere(intent)
        task = asyncio.current_task()
        assert task is not None
        if task in self._working:  # Part of a body that this ends.
            yield
            return
        self._working[task] = False
        try:
            yield
        except asyncio.CancelledError:
            if not self._working[task] or task.uncancel():
                raise
            raise _elsewhere(intent) from None
        finally:
            del self._working[task]

    async def finished(self, intent: Intent) -> None:
        """Removes an intent whose deletion is complete. Raises MetadataError, ServiceNotReady for another broker's."""
        await uninterrupted(self._remove(intent))

    async def _remove(self, intent: Intent) -> None:
        key = intent.kind, intent.name
        try:
            await self._store.delete(intent.key, self._versions.get(key))
        except BadVersion as mismatch:
            self._versions.pop(key, None)
            raise _elsewhere(intent) from mismatch
        self._versions.pop(key, None)
        self.pending.pop(key, None)


def _elsewhere(intent: Intent) -> ServiceNotReady:
    return ServiceNotReady(f"Another broker deletes {intent.kind} {intent.name}; ask again")
