"""A metadata store of each kind."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from foundation.zookeeper.url import ZookeeperUrl
from tests.support.java import ZooKeeper


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("zookeeper", marks=[pytest.mark.peer, pytest.mark.slow])]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    opened: MetadataStore
    if request.param == "memory":
        opened = MemoryMetadataStore()
    elif request.param == "sqlite":
        opened = SqliteMetadataStore(tmp_path / "m.db")
    else:
        server: ZooKeeper = request.getfixturevalue("zookeeper")
        url = ZookeeperUrl(server.address, f"/{uuid.uuid4().hex[:8]}")
        opened = await ZookeeperMetadataStore.open(url, session_timeout_s=30, timeout_s=60)
    yield opened
    await opened.close()
