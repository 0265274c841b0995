"""The settings of `magnetar standalone`: one file, read by the broker and by the bookie inside it.

Each side takes the keys of its own table and skips those of the other. The broker's side names unknown keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.config.keys import BOOKIE_KEYS
from bookie_stub.config.rules import load_bookie_settings
from broker.config import load_broker_settings
from broker.config.keys import BROKER_KEYS
from foundation.settings.load import Override
from foundation.settings.settings import Note, Settings


class StandaloneSettings(NamedTuple):
    """The settings of both sides."""

    broker: Settings
    """With every key of the file that is no bookie key."""
    bookie: Settings
    """With the bookie keys of the same file."""
    notes: tuple[Note, ...]
    """The notes of both sides, each once."""


class _EverythingElse:
    """Contains every name but the bookie's keys."""

    def __contains__(self, name: object) -> bool:
        return name not in BOOKIE_KEYS


def load_standalone_settings(
    path: str | Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Sequence[Override] = (),
    profile: str | None = None,
) -> StandaloneSettings:
    """Returns the settings of both sides; `path` None means the shipped values. Raises SettingsError."""
    bookies_own = {*BOOKIE_KEYS.keys, *(set(BOOKIE_KEYS.unused.defaults) - set(BROKER_KEYS.unused.defaults))}
    # tlsKeyStore and tlsTrustStore are keys of both. Here they are the broker's: this bookie has no port to protect.
    bookies_own -= BROKER_KEYS.unused.asks_for.keys()
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
