"""The broker's settings: the table of its keys, and the calls that load and change them.

A process calls `load_broker_settings` once. Each room takes its own small frozen value from the result, see
`foundation/settings/fields.py`. `changed_settings` makes the settings that hold after a change at run time.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from broker.config.keys import BROKER_KEYS
from broker.config.rules import BROKER_RULES, check
from foundation.settings.load import Override, load_settings
from foundation.settings.settings import Note, Settings


def load_broker_settings(
    path: str | Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Sequence[Override] = (),
    profile: str | None = None,
    standalone: bool = False,
    neighbours: Container[str] = (),
) -> Settings:
    """Returns the broker's settings from a file, the environment and the command line.

    `path` None means the shipped values. `profile` outranks the key `pulsarDefaults`. `standalone` takes the defaults
    of `magnetar standalone`. `neighbours` has the keys of the same file that the embedded bookie reads.
    `Settings.notes` has the lines for the log. Raises SettingsError, whose text is one line.
    """
    settings = load_settings(
        BROKER_KEYS,
        path,
        environ=environ,
        overrides=overrides,
        profile=profile,
        standalone=standalone,
        neighbours=neighbours,
        rules=BROKER_RULES,
    )
    settings.notes += tuple(check(settings))
    return settings


def changed_settings(started: Settings, texts: Mapping[str, str]) -> Settings:
    """Returns `started` with the dynamic keys in `texts` changed; `notes` has the warnings about these.

    Raises SettingsError as a start with these values would, and NotDynamic for a key that needs a restart.
    """
    settings = started.with_dynamic(texts)
    ignored = [name for name in texts if settings.table.is_unused(name)]
    settings.notes = (
        *(Note("warning", f"dynamic: {name}: accepted, not used here") for name in ignored),
        *check(settings),
    )
    return settings
