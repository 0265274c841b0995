"""DynamicSettings: what was changed at run time, on top of what the process started with.

The one way by which a setting changes while the broker runs, and the one by which a change comes back at the next
start: check with the rules of a start, keep it in the metadata store, hand the result to the rooms. A change that
is refused or cannot be kept has no effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from broker.config import changed_settings
from broker.metadata.dynamic_configuration import load_dynamic_configuration, save_dynamic_configuration
from broker.metadata.metadata_store import MetadataStore
from settings.errors import SettingsError
from settings.keys import mask
from settings.settings import Note, Settings

log = logging.getLogger("magnetar")


class DynamicSettings:
    def __init__(
        self, started: Settings, metadata: MetadataStore, reconfigure: Callable[[Settings], None]
    ) -> None:
        """`reconfigure` is called with the settings that hold from now on."""
        self.current = started
        self._started = started
        self._metadata = metadata
        self._reconfigure = reconfigure
        self._texts: dict[str, str] = {}
        self._one_change = asyncio.Lock()

    @property
    def names(self) -> list[str]:
        """Keys that may be set, sorted."""
        return self._started.table.dynamic_names()

    @property
    def texts(self) -> Mapping[str, str]:
        """What is set at run time, by key, as it was given."""
        return self._texts

    async def open(self) -> None:
        """Apply what earlier runs were told. What no longer holds is left out, with a warning that says why."""
        stored = await load_dynamic_configuration(self._metadata)
        if not stored:
            return
        texts, settings = self._still_allowed(stored)
        for name, text in texts.items():
            log.info("Applying config %s = %s (dynamic)", name, mask(name, text))
        self._apply(texts, settings)

    async def set(self, name: str, text: str) -> list[Note]:
        """Change one key, durably and at once; answers the warnings that this gives rise to.

        Raises NotDynamic, SettingsError for a value that is not allowed alone or beside the others, MetadataError.
        """
        async with self._one_change:
            texts = {key: kept for key, kept in self._texts.items() if key != name}
            notes = await self._change({**texts, name: text.strip()})
        log.info("%s = %s (set at run time)", name, mask(name, text.strip()))
        return notes

    async def unset(self, name: str) -> list[Note]:
        """Take back what the process started with. Raises like `set`; a key that was not set is no error."""
        self._started.check_dynamic(name)
        async with self._one_change:
            notes = await self._change({key: text for key, text in self._texts.items() if key != name})
        log.info("%s is as it was at the start again", name)
        return notes

    async def _change(self, texts: dict[str, str]) -> list[Note]:
        settings = changed_settings(self._started, texts)
        await save_dynamic_configuration(self._metadata, texts)
        return self._apply(texts, settings)

    def _apply(self, texts: dict[str, str], settings: Settings) -> list[Note]:
        said = self.current.notes
        news = [note for note in settings.notes if note not in said]
        for note in news:
            log.log(logging.WARNING if note.level == "warning" else logging.INFO, note.text)
        self._texts, self.current = texts, settings
        self._reconfigure(settings)
        return news

    def _still_allowed(self, stored: dict[str, str]) -> tuple[dict[str, str], Settings]:
        """File and profile may have changed since the values were stored."""
        try:
            return stored, changed_settings(self._started, stored)
        except SettingsError:
            texts: dict[str, str] = {}
        for name, text in stored.items():
            try:
                changed_settings(self._started, {**texts, name: text})
            except SettingsError as error:
                log.warning("! %s; what was set at run time is left out: set it again", error)
            else:
                texts[name] = text
        return texts, changed_settings(self._started, texts)
