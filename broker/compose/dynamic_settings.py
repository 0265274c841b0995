"""DynamicSettings: changes of settings while the broker runs, and their return at the next start.

Each change passes the rules of a start, is stored in the metadata store, and only then reaches the rooms. So a change
that is refused or cannot be stored has no effect. The admin API calls `set` and `unset`, a start calls `open`. A change that
another process stores is applied as soon as a watch tells of it.

Stored is one JSON object of texts by key, in Pulsar's place.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Final

from bookkeeper.metadata.documents import Documents
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.config import changed_settings
from foundation.loop.uninterrupted import uninterrupted
from foundation.settings.errors import MissingProtection, SettingsError
from foundation.settings.keys import mask
from foundation.settings.protection import refuse_missing
from foundation.settings.settings import Note, Settings

log = logging.getLogger("magnetar")

KEY: Final = "/admin/configuration"
"""Pulsar's place in the metadata store."""
_NAME: Final = ""
"""Of the one document."""


class DynamicSettings:
    """The settings of a broker that runs: those of its start, with stored changes on top."""

    def __init__(
        self,
        started: Settings,
        metadata: MetadataStore,
        reconfigure: Callable[[Settings], None],
        check: Callable[[Settings, Settings], None] = lambda _before, _after: None,
    ) -> None:
        """`reconfigure` gets the new settings after each change.

        `check` gets the settings before and after a change of this broker's administrator, and may raise SettingsError.
        """
        self.current = started
        """The settings that hold now."""
        self._started = started
        self._stored = Documents(metadata, KEY, _parse, _encode, levels=0, told=self._told)
        self._reconfigure = reconfigure
        self._check = check
        self._texts: dict[str, str] = {}
        # Without the lock, of two changes that wait for the store the later would lose the earlier's key.
        self._one_change = asyncio.Lock()

    @property
    def names(self) -> list[str]:
        """The keys that may be set, sorted."""
        return self._started.table.dynamic_names()

    @property
    def texts(self) -> Mapping[str, str]:
        """The changed keys with their texts as given."""
        return self._texts

    async def open(self) -> None:
        """Applies the stored changes; leaves out, with a warning, those that the rules of this start refuse.

        Raises MissingProtection for a stored change that asks for a protection which is not there.
        """
        await self._stored.open()
        stored = self._stored.values.get(_NAME)
        if not stored:
            return
        texts, settings = self._still_allowed(stored)
        self._log(texts)
        self._apply(texts, settings)

    async def read_again(self) -> None:
        """Returns when the settings have each change that was stored before this call. Raises MetadataError."""
        await self._stored.read_again()

    async def read_newest(self) -> None:
        """Applies what is stored now, sooner than a watch tells. Raises MetadataError."""
        await self._stored.read(_NAME)
        await self._told(_NAME, None)

    async def close(self) -> None:
        """Follows the store no longer."""
        await self._stored.close()

    async def set(self, name: str, text: str) -> list[Note]:
        """Changes one key, durably and at once. Returns the warnings about the change.

        Raises NotDynamic, SettingsError for a value that is not allowed alone or beside the others, and MetadataError
        when the store fails.
        """
        async with self._one_change:
            notes = await self._change(lambda texts: {**_without(texts, name), name: text.strip()})
        log.info("%s = %s (set at run time)", name, mask(name, text.strip()))
        return notes

    async def unset(self, name: str) -> list[Note]:
        """Restores the value of the start. Raises like `set`; a key that was not changed is no error."""
        self._started.check_dynamic(name)
        async with self._one_change:
            notes = await self._change(lambda texts: _without(texts, name))
        log.info("%s has its value of the start again", name)
        return notes

    async def _change(self, changed: Callable[[Mapping[str, str]], dict[str, str]]) -> list[Note]:
        texts, settings = dict(self._texts), self.current

        def document(before: dict[str, str] | None) -> dict[str, str]:
            nonlocal texts, settings
            # Of what is allowed here, and stored with the rest: other brokers may have been started with other settings.
            texts = changed(self._still_allowed(before or {})[0])
            # On the settings of the start and not on `current`: a key that is unset must get its old value back.
            settings = changed_settings(self._started, texts)
            self._check(self.current, settings)
            return changed(before or {})

        # Stored before it is applied: the next start would silently lose a value that could not be stored.
        await uninterrupted(self._stored.change(_NAME, document))
        return self._apply(texts, settings)

    async def _told(self, _name: str, before: dict[str, str] | None) -> None:
        async with self._one_change:
            stored = self._stored.values.get(_NAME)
            if stored is None and self._stored.is_stored(_NAME):
                # Otherwise damage would undo what an administrator has forbidden.
                log.error("! %s cannot be read; the settings stay", KEY)
                return
            try:
                texts, settings = self._still_allowed(stored or {})
            except MissingProtection as error:
                log.error("! %s; the settings stay", error)
                return
            if texts != self._texts:
                self._log(texts)
                self._apply(texts, settings)

    def _log(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            if self._texts.get(name) != text:
                log.info("Applying config %s = %s (dynamic)", name, mask(name, text))

    def _apply(self, texts: dict[str, str], settings: Settings) -> list[Note]:
        known = self.current.notes
        news = [note for note in settings.notes if note not in known]
        for note in news:
            log.log(logging.WARNING if note.level == "warning" else logging.INFO, note.text)
        self._texts, self.current = texts, settings
        self._reconfigure(settings)
        return news

    def _still_allowed(self, stored: dict[str, str]) -> tuple[dict[str, str], Settings]:
        """Returns the stored texts that this start allows, and the settings.

        File and profile may have changed since the texts were stored. All texts are tried together first, because two of
        them may only be allowed together. Raises MissingProtection: a protection that is left out would open the broker.
        """
        place = f"{KEY} in the metadata store"
        refuse_missing(self._started.table, {name: (text, place) for name, text in stored.items()})
        try:
            return stored, changed_settings(self._started, stored)
        except SettingsError:
            texts: dict[str, str] = {}
        for name, text in stored.items():
            try:
                changed_settings(self._started, {**texts, name: text})
            except SettingsError as error:
                log.warning("! %s; this change at run time is left out: set the key again", error)
            else:
                texts[name] = text
        return texts, changed_settings(self._started, texts)


def _without(texts: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: text for key, text in texts.items() if key != name}


def _parse(data: bytes) -> dict[str, str]:
    found = json.loads(data)
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError("an object of texts is expected")
    return found


def _encode(texts: dict[str, str], _before: dict[str, str] | None) -> bytes:
    return json.dumps(texts).encode()
