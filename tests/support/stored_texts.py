"""The stored changes of settings, read and written without a broker."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.compose.dynamic_settings import KEY


async def stored_texts(metadata: MetadataStore) -> dict[str, str]:
    stored = await metadata.get(KEY)
    return {} if stored is None else dict(json.loads(stored.value))


async def store_texts(metadata: MetadataStore, texts: Mapping[str, str]) -> None:
    await metadata.put(KEY, json.dumps(dict(texts)).encode())
