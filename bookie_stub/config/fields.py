"""`bookie_key`: makes a settings field from a key of the table."""

from __future__ import annotations

from functools import cache
from typing import Final

from bookie_stub.config.keys import BOOKIE_KEYS
from bookie_stub.config.rules import load_bookie_settings
from foundation.settings.fields import KeyFields
from foundation.settings.settings import Settings


@cache
def default_settings() -> Settings:
    """Returns the settings of a bookie without file, environment and options."""
    return load_bookie_settings(None, environ={})


bookie_key: Final = KeyFields(BOOKIE_KEYS, default_settings)
