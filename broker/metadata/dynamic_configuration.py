"""What was set at run time, as the metadata store keeps it: one JSON object of texts by key, in the order of the changes.

The key is Pulsar's. Whether a text is allowed for its key is no business of the store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from broker.metadata.metadata_store import MetadataStore

KEY: Final = "/admin/configuration"


async def load_dynamic_configuration(metadata: MetadataStore) -> dict[str, str]:
    """Empty where nothing was ever set. Raises MetadataError."""
    stored = await metadata.get(KEY)
    return {} if stored is None else dict(json.loads(stored.value))


async def save_dynamic_configuration(metadata: MetadataStore, texts: Mapping[str, str]) -> None:
    """Durable on return. Raises MetadataError, and then nothing was changed."""
    await metadata.put(KEY, json.dumps(dict(texts)).encode())
