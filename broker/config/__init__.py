"""Pulsar's keys: their types, defaults per profile, and where an effective value came from.

`load_broker_settings` is what a process calls, once, and `changed_settings` what holds after a change at run
time, by the same rules; rooms are handed the few numbers that they need, never the whole.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from broker.config.record_keys import RECORD
from broker.config.rules import broker_rules, check
from broker.config.server_keys import ENTRY_METADATA, FLOW, MAGNETAR, METRICS, SERVER
from broker.config.storage_keys import BOOKIES, CURSORS, ENTRY_CACHE, LEDGERS
from broker.config.topic_keys import DEDUPLICATION, DISPATCH, SUBSCRIPTIONS, TOPICS
from broker.config.unused_keys import DYNAMIC, PASSED_THROUGH, REMOVED, UNUSED
from settings.keys import KeyTable
from settings.load import load_settings
from settings.settings import Note, Settings

SECTIONS = (
    MAGNETAR,
    SERVER,
    FLOW,
    ENTRY_METADATA,
    TOPICS,
    DEDUPLICATION,
    SUBSCRIPTIONS,
    DISPATCH,
    LEDGERS,
    CURSORS,
    ENTRY_CACHE,
    RECORD,
    BOOKIES,
    METRICS,
)
"""In the order of the conf file."""

BROKER_KEYS = KeyTable(
    "broker",
    SECTIONS,
    unused=UNUSED,
    prefixes=PASSED_THROUGH,
    removed=REMOVED,
    dynamic=DYNAMIC,
)


def load_broker_settings(
    path: str | Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Sequence[str] = (),
    profile: str | None = None,
    standalone: bool = False,
    neighbours: Container[str] = (),
) -> Settings:
    """The broker's settings from a file (None: the shipped values), environment and `key=value` overrides.

    `profile` outranks the key `magnetarProfile`. `standalone` takes the defaults of `magnetar standalone`.
    `neighbours` has the keys of the same file that somebody else reads, such as the embedded bookie.
    Raises SettingsError, whose text is one line; `Settings.notes` has what the log should say.
    """
    settings = load_settings(
        BROKER_KEYS,
        path,
        environ=environ,
        overrides=overrides,
        profile=profile,
        standalone=standalone,
        neighbours=neighbours,
        rules=broker_rules(environ),
    )
    settings.notes += tuple(check(settings))
    return settings


def changed_settings(started: Settings, texts: Mapping[str, str]) -> Settings:
    """`started` with the dynamic keys in `texts` changed. `Settings.notes` has what the log should say about them.

    Raises SettingsError as a start with these values would; NotDynamic for a key that needs a restart.
    """
    settings = started.with_dynamic(texts)
    ignored = [name for name in texts if settings.table.is_unused(name)]
    settings.notes = (
        *(Note("warning", f"dynamic: {name}: accepted, not used here") for name in ignored),
        *check(settings),
    )
    return settings
