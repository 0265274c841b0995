"""All settings of the broker with their values, origins and limits; values of secret keys are masked."""

from __future__ import annotations

from foundation.settings.keys import MASK, Key, mask
from foundation.settings.settings import DYNAMIC, Settings
from foundation.value import Json


def settings_answer(settings: Settings) -> dict[str, Json]:
    """Returns the answer: every key of the broker's table, sorted by name."""
    return {"settings": [_row(settings, settings.table.keys[name]) for name in sorted(settings.table.keys)]}


def _row(settings: Settings, key: Key) -> Json:
    value = settings.value(key.name)
    origin = settings.origin(key.name)
    default = key.default_for(settings.profile, settings.standalone)
    return {
        "name": key.name,
        "section": key.section,
        # Computed values may say how they came about, and an origin may quote a value.
        "origin": mask(key.name, origin) if _is_secret(key) and origin.startswith("computed") else origin,
        "value": key.show(value),
        "default": key.computed if default is None and key.computed else key.show(default),
        "type": key.kind,
        "unit": key.unit,
        "choices": [*key.choices],
        "allowed": key.allowed(),
        "dynamic": settings.table.is_dynamic(key.name),
        "secret": _is_secret(key),
        "changed": origin == DYNAMIC,
        "used": key.used,
        "description": key.doc,
    }


def _is_secret(key: Key) -> bool:
    return mask(key.name, "x") == MASK
