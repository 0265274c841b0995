"""Documents that follow a store which others write: watches, interruptions, lost notices, late reads, bad values."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from bookkeeper.metadata.documents import Documents
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Check, MetadataStore, Stop, Versioned
from foundation.model.errors import BadVersion, MetadataError

TURNS_MAX = 1_000


class TroubledStore(MemoryMetadataStore):
    """Another session on the same values: reads can be late or fail, and notices of changes can be lost."""

    def __init__(self, first: MemoryMetadataStore) -> None:
        super().__init__()
        self._values, self._children = first._values, first._children
        self._watches, self._owners = first._watches, first._owners
        self.is_shared = True
        self.loses_notices = False
        self.fails = 0
        """Reads that fail from now on."""
        self.gate: asyncio.Event | None = None
        """Answers to reads wait for it."""
        self.late = asyncio.Event()
        """Set while an answer waits."""

    async def get(self, key: str) -> Versioned | None:
        if self.fails:
            self.fails -= 1
            raise MetadataError("the store does not answer")
        found = await super().get(key)
        if self.gate is not None:
            self.late.set()
            await self.gate.wait()
        return found

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        return await super().watch(key, self._unless_lost(changed))

    async def watch_children(self, key: str, changed: Callable[[], None]) -> Stop:
        return await super().watch_children(key, self._unless_lost(changed))

    def _unless_lost(self, changed: Callable[[], None]) -> Callable[[], None]:
        def tell() -> None:
            if not self.loses_notices:
                changed()

        return tell


class Followed:
    """Texts that follow one session; another one writes."""

    def __init__(self, *, levels: int = 1, quoted: bool = False) -> None:
        self.writer = MemoryMetadataStore()
        self.store = TroubledStore(self.writer)
        self.told: list[tuple[str, str | None, str | None]] = []
        """Name, former and present text."""
        self.texts = Documents(
            self.store,
            "/texts",
            _decode,
            lambda text, _: text.encode(),
            levels=levels,
            quoted=quoted,
            told=self._tell,
        )

    async def _tell(self, name: str, before: str | None) -> None:
        self.told.append((name, before, self.texts.values.get(name)))

    async def until(self, expected: dict[str, str]) -> None:
        for _ in range(TURNS_MAX):
            if self.texts.values == expected and self.texts._follower is None:
                return
            await asyncio.sleep(0)
        assert self.texts.values == expected


def _decode(data: bytes) -> str:
    return data.decode()


@asynccontextmanager
async def followed(*, levels: int = 1, quoted: bool = False) -> AsyncIterator[Followed]:
    one = Followed(levels=levels, quoted=quoted)
    await one.writer.put("/texts/first/a" if levels == 2 else "/texts" if not levels else "/texts/a", b"1")
    await one.texts.open()
    assert list(one.texts.values.values()) == ["1"]
    yield one
    await one.texts.close()


async def test_change_creation_and_removal_by_another_session_are_taken_over_and_told() -> None:
    async with followed() as one:
        await one.writer.put("/texts/a", b"2")
        await one.until({"a": "2"})
        await one.writer.put("/texts/b", b"1")
        await one.until({"a": "2", "b": "1"})
        await one.writer.put("/texts/b", b"3")
        await one.until({"a": "2", "b": "3"})
        await one.writer.delete("/texts/a")
        await one.until({"b": "3"})
        await one.writer.put("/texts/a", b"4")
        await one.until({"a": "4", "b": "3"})
        assert one.told == [
            ("a", "1", "2"),
            ("b", None, "1"),
            ("b", "1", "3"),
            ("a", "2", None),
            ("a", None, "4"),
        ]


async def test_own_document_that_another_session_removes_before_it_was_listed_goes() -> None:
    async with followed() as one:
        one.store.loses_notices = True
        await one.texts.change("b", lambda _: "1")
        one.store.loses_notices = False
        await one.until({"a": "1", "b": "1"})
        await one.writer.delete("/texts/b")
        await one.until({"a": "1"})


async def test_names_of_two_levels_are_found_below_parents_that_come_go_and_come_again() -> None:
    async with followed(levels=2) as one:
        await one.writer.put("/texts/second", b"a value of its own")
        await one.until({"first/a": "1"})
        await one.writer.put("/texts/second/b", b"2")
        await one.until({"first/a": "1", "second/b": "2"})
        await one.writer.delete("/texts/first/a")
        await one.until({"second/b": "2"})
        await one.writer.put("/texts/first/c", b"3")
        await one.until({"first/c": "3", "second/b": "2"})


async def test_document_without_a_name_is_followed_at_the_root() -> None:
    async with followed(levels=0) as one:
        await one.writer.put("/texts", b"2")
        await one.until({"": "2"})
        await one.writer.delete("/texts")
        await one.until({})
        await one.writer.put("/texts", b"3")
        await one.until({"": "3"})


async def test_name_of_any_characters_is_followed() -> None:
    async with followed(quoted=True) as one:
        await one.writer.put("/texts/x%3A%2F%2Fy", b"2")
        await one.until({"a": "1", "x://y": "2"})


async def test_condition_of_a_change_is_asked_at_each_write() -> None:
    async with followed() as one:
        asked: list[int] = []

        def condition() -> list[Check]:
            asked.append(len(asked))
            if len(asked) == 1:
                # Another session is faster.
                one.writer._set("/texts/a", b"2", 1)
            return [Check("/lease", 0)]

        await one.writer.put("/lease", b"mine")
        await one.texts.change("a", lambda text: f"{text}!", condition)
        assert (asked, one.texts.values) == ([0, 1], {"a": "2!"})
        await one.writer.put("/lease", b"another's")
        with pytest.raises(BadVersion):
            await one.texts.change("a", lambda text: f"{text}!", condition)
        assert one.texts.values == {"a": "2!"}


async def test_own_change_is_not_told() -> None:
    async with followed() as one:
        await one.texts.change("a", lambda _: "2")
        await one.texts.change("b", lambda _: "1")
        await one.until({"a": "2", "b": "1"})
        assert one.told == []


async def test_everything_is_read_again_after_an_interruption_of_the_session() -> None:
    async with followed(levels=2) as one:
        one.store.loses_notices = True
        await one.writer.put("/texts/first/a", b"2")
        await one.writer.put("/texts/first/b", b"1")
        await one.writer.put("/texts/second/c", b"1")
        for _ in range(20):
            await asyncio.sleep(0)
        assert one.texts.values == {"first/a": "1"}, "otherwise the interruption would show nothing"
        one.store.loses_notices = False
        one.store.expire()
        await one.until({"first/a": "2", "first/b": "1", "second/c": "1"})


async def test_lost_notice_is_made_good_by_reading_again() -> None:
    async with followed() as one:
        one.store.loses_notices = True
        await one.writer.put("/texts/b", b"2")
        await one.writer.delete("/texts/a")
        for _ in range(20):
            await asyncio.sleep(0)
        assert one.texts.values == {"a": "1"}
        await one.texts.read_again()
        assert one.texts.values == {"b": "2"}
        await one.until({"b": "2"})
        assert sorted(one.told) == [("a", "1", None), ("b", None, "2")]


async def test_failed_read_is_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bookkeeper.metadata.documents._RETRY_S", 0)
    async with followed() as one:
        one.store.fails = 3
        with caplog.at_level(logging.WARNING):
            await one.writer.put("/texts/a", b"2")
            await one.until({"a": "2"})
        assert one.store.fails == 0
        assert "cannot be read, asking again" in caplog.text
        one.store.fails = 1
        with pytest.raises(MetadataError):
            await one.texts.read_again()
        await one.texts.read_again()


async def test_late_read_brings_back_nothing_that_an_own_change_has_replaced() -> None:
    async with followed() as one:
        one.store.gate = asyncio.Event()
        one.store.expire()
        await one.store.late.wait()
        change = asyncio.create_task(one.texts.change("a", lambda text: f"{text}+"))
        for _ in range(20):
            await asyncio.sleep(0)
        one.store.gate.set()
        await change
        assert one.texts.values == {"a": "1+"}
        await one.until({"a": "1+"})
        assert one.told == [], "not the value of before, as a change of another process"


async def test_value_that_cannot_be_read_counts_as_missing_until_it_is_written_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with followed() as one:
        with caplog.at_level(logging.ERROR):
            await one.writer.put("/texts/a", b"\xff")
            await one.until({})
        assert "/texts/a cannot be read and counts as missing" in caplog.text
        assert one.texts.is_stored("a")
        await one.texts.change("a", lambda before: f"after {before}")
        assert one.texts.values == {"a": "after None"}


async def test_closed_documents_follow_no_longer() -> None:
    async with followed() as one:
        await one.texts.close()
        await one.writer.put("/texts/a", b"2")
        for _ in range(20):
            await asyncio.sleep(0)
        assert one.texts.values == {"a": "1"}


async def test_store_of_one_process_is_read_and_not_watched() -> None:
    class Unwatched(MemoryMetadataStore):
        async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
            raise AssertionError("a watch costs memory for nothing")

        watch_children = watch

    store: MetadataStore = Unwatched()
    await store.put("/texts/a", b"1")
    texts = Documents(store, "/texts", _decode, lambda text, _: text.encode())
    await texts.open()
    assert texts.values == {"a": "1"}
