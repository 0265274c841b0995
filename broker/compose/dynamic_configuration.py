"""Stores the settings that were changed at run time, in order.

One JSON object of texts by key, at Pulsar's own key `/admin/configuration`. `DynamicSettings` checks the texts; here they
are only stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from bookkeeper.metadata.metadata_store import MetadataStore

KEY: Final = "/admin/configuration"
"""In the metadata store."""


async def load_dynamic_configuration(metadata: MetadataStore) -> dict[str, str]:
    """Returns the texts by key, none before the first change. Raises MetadataError."""
    stored = await metadata.get(KEY)
    return {} if stored is None else dict(json.loads(stored.value))


async def save_dynamic_configuration(metadata: MetadataStore, texts: Mapping[str, str]) -> None:
    """Replaces all texts; durable on return. Raises MetadataError."""
    await metadata.put(KEY, json.dumps(dict(texts)).encode())
