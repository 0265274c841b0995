"""`broker_key`: makes a field of a room's settings from a key of the broker's table.

Apart from `broker.config`, because `magnetar config show` needs the table and no room.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from broker.config import load_broker_settings
from broker.config.keys import BROKER_KEYS
from foundation.settings.fields import KeyFields
from foundation.settings.settings import Settings


@cache
def default_settings() -> Settings:
    """Returns the settings of a broker without file, environment and options."""
    return load_broker_settings(None, environ={})


broker_key: Final = KeyFields(BROKER_KEYS, default_settings)
