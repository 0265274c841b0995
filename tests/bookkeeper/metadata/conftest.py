"""A metadata store of each kind; the one in ZooKeeper needs Java."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_server import MetadataServer
from bookkeeper.metadata.metadata_store import MetadataStore
from bookkeeper.metadata.socket_metadata_store import SocketMetadataStore
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from foundation.zookeeper.url import ZookeeperUrl
from tests.support.java import ZooKeeper

SESSION_S = 60.0


async def open_store(address: str, root: str) -> ZookeeperMetadataStore:
    url = ZookeeperUrl(address, root)
    return await ZookeeperMetadataStore.open(url, session_timeout_s=SESSION_S, timeout_s=60)


async def open_socket(folder: Path) -> SocketMetadataStore:
    return await SocketMetadataStore.open(folder / "m.sock", session_timeout_s=SESSION_S, timeout_s=60)


@pytest.fixture
def root() -> str:
    """A chroot of its own for each test."""
    return f"/{uuid.uuid4().hex[:8]}/chroot"


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        "socket",
        pytest.param("zookeeper", marks=[pytest.mark.peer, pytest.mark.slow]),
    ]
)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, root: str
) -> AsyncIterator[MetadataStore]:
    opened: MetadataStore
    if kind == "memory":
        opened = MemoryMetadataStore()
    elif kind == "sqlite":
        opened = SqliteMetadataStore(tmp_path / "m.db")
    elif kind == "socket":
        server = await MetadataServer.start(tmp_path / "m.db", tmp_path / "m.sock")
        opened = await open_socket(tmp_path)
        yield opened
        await opened.close()
        await server.close()
        return
    else:
        zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
        opened = await open_store(zookeeper.address, root)
    yield opened
    await opened.close()


@pytest.fixture
async def other(
    store: MetadataStore, request: pytest.FixtureRequest, root: str, tmp_path: Path
) -> AsyncIterator[MetadataStore]:
    """Another session on the same values."""
    opened: MetadataStore
    if isinstance(store, MemoryMetadataStore):
        opened = store.another()
    elif isinstance(store, SqliteMetadataStore):
        pytest.skip("one process uses the file, in one session")
    elif isinstance(store, SocketMetadataStore):
        opened = await open_socket(tmp_path)
    else:
        zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
        opened = await open_store(zookeeper.address, root)
    yield opened
    await opened.close()
