"""Rules of shared metadata, each broken on purpose: the simulation of sessions must notice it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from unittest import mock

from bookkeeper.metadata import start_count
from bookkeeper.metadata.documents import Documents
from bookkeeper.metadata.metadata_store import MetadataStore, Write
from bookkeeper.metadata.owned_key import OwnedKey
from broker.compose.confirmed_rights import ConfirmedRights
from broker.service.lifecycle.deletion.intents import Intent, Intents
from foundation.model.errors import MetadataError
from tests.sim.followers import FollowerStore


def _changes_without_version() -> object:
    """A change writes over whatever another process has stored."""

    async def write(
        self: Documents[object], name: str, value: object, before: object, beside: Sequence[Write]
    ) -> None:
        if value is None:
            await self._store.delete(self._key(name))
            self.values.pop(name, None)
            self._versions.pop(name, None)
        else:
            self._versions[name] = await self._store.put(self._key(name), self._encode(value, before))
            self.values[name] = value

    return mock.patch.object(Documents, "_write", write)


def _reads_beside_writes() -> object:
    """A read and a write of one name do not wait for each other."""
    return mock.patch.object(Documents, "_locked", side_effect=lambda _: asyncio.Lock())


def _reads_before_watches() -> object:
    """A document is watched after it was read, so a change between the two is not noticed."""
    plain = Documents._refresh

    async def refresh(self: Documents[object], name: str) -> None:
        await self.read(name)
        read = self.read

        async def nothing(_name: str) -> object:
            return self.values.get(_name)

        self.read = nothing  # type: ignore[assignment,method-assign]
        try:
            await plain(self, name)
        finally:
            self.read = read  # type: ignore[method-assign]

    return mock.patch.object(Documents, "_refresh", refresh)


def _failed_reads_are_not_repeated() -> object:
    plain = Documents._read_due

    async def read(self: Documents[object]) -> None:
        try:
            await plain(self)
        except MetadataError:
            self._due.clear()
            self._lists_due.clear()

    return mock.patch.object(Documents, "_read_due", read)


def _confirms_without_sync() -> object:
    """Rights count as confirmed by a follower that may have lost its leader."""

    async def read_again(self: Documents[object]) -> None:
        self._mark_all()
        await self._read_due()

    return mock.patch.object(Documents, "read_again", read_again)


def _confirms_as_of_the_answer() -> object:
    async def read(self: ConfirmedRights) -> None:
        try:
            for read_again in self._reads:
                await read_again()
            self._confirmed_ns = self._now_ns()
        except MetadataError:
            pass
        finally:
            self._is_reading = False

    return mock.patch.object(ConfirmedRights, "_read", read)


def _rights_without_a_bound() -> object:
    return mock.patch.object(ConfirmedRights, "is_confirmed", return_value=True)


def _starts_without_version() -> object:
    async def count(metadata: MetadataStore) -> int:
        found = await metadata.get(start_count.STARTS_KEY)
        number = int(found.value) if found else 0
        await metadata.put(start_count.STARTS_KEY, b"%d" % (number + 1))
        return number

    return mock.patch.object(start_count, "count_start", count)


def _lost_answers_are_taken_for_others() -> object:
    async def is_own(self: OwnedKey, key: str) -> bool:
        return False

    return mock.patch.object(OwnedKey, "_is_own", is_own)


def _every_broker_resumes() -> object:
    """A broker goes on with a deletion whose owner lives."""

    async def own(self: Intents, intent: Intent) -> Intent:
        key = intent.kind, intent.name
        if key not in self._versions:
            self._owned(intent, await self._read(*key), self._ended)
        return intent

    return mock.patch.object(Intents, "own", own)


def _deletions_outlive_their_session() -> object:
    """A step goes on, and what it has asked is carried out, after another broker may have taken the deletion over."""

    @contextlib.asynccontextmanager
    async def while_owned(self: Intents, intent: Intent) -> AsyncIterator[None]:
        yield

    async def delete(self: FollowerStore, key: str, expected: int | None = None) -> None:
        await self._write(lambda: self._session.delete(key, expected))

    patches = contextlib.ExitStack()
    patches.enter_context(mock.patch.object(Intents, "while_owned", while_owned))
    patches.enter_context(mock.patch.object(FollowerStore, "delete", delete))
    return patches


SESSION_BREAKAGES: dict[str, Callable[[], object]] = {
    "changes-without-version": _changes_without_version,
    "reads-beside-writes": _reads_beside_writes,
    "reads-before-watches": _reads_before_watches,
    "failed-reads-are-not-repeated": _failed_reads_are_not_repeated,
    "confirms-without-sync": _confirms_without_sync,
    "confirms-as-of-the-answer": _confirms_as_of_the_answer,
    "rights-without-a-bound": _rights_without_a_bound,
    "starts-without-version": _starts_without_version,
    "lost-answers-are-taken-for-others": _lost_answers_are_taken_for_others,
    "every-broker-resumes": _every_broker_resumes,
    "deletions-outlive-their-session": _deletions_outlive_their_session,
}
