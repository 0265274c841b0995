"""The settings of `magnetar standalone`: one file, read by the broker and by the bookie inside it.

Two tables, one file: each side takes its own keys and leaves the other's alone; what nobody knows is named
once, by the broker's side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.config.keys import BOOKIE_KEYS
from bookie_stub.config.rules import load_bookie_settings
from broker.config import BROKER_KEYS, load_broker_settings
from settings.settings import Note, Settings


class StandaloneSettings(NamedTuple):
    broker: Settings
    bookie: Settings
    notes: tuple[Note, ...]
    """Of both, each said once."""


class _EverythingElse:
    """All names but the bookie's own."""

    def __contains__(self, name: object) -> bool:
        return name not in BOOKIE_KEYS


def load_standalone_settings(
    path: str | Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Sequence[str] = (),
    profile: str | None = None,
) -> StandaloneSettings:
    """Raises SettingsError, whose text is one line. `path` None: the shipped values."""
    bookies_own = frozenset(BOOKIE_KEYS.keys) | frozenset(BOOKIE_KEYS.unused) - frozenset(BROKER_KEYS.unused)
    broker = load_broker_settings(
        path,
        environ=environ,
        overrides=overrides,
        profile=profile,
        standalone=True,
        neighbours=bookies_own,
    )
    bookie = load_bookie_settings(
        path, environ=environ, overrides=overrides, standalone=True, neighbours=_EverythingElse()
    )
    return StandaloneSettings(broker, bookie, tuple(dict.fromkeys((*broker.notes, *bookie.notes))))
