"""ZookeeperReads: reads of nodes and of the names below them; all that are asked while a request is out share the next one.

Each request costs some 0.15 ms of CPU, most of it in kazoo's threads, and each further node in it a tenth of that. A broker
that answers lookups of many bundles, or opens many topics, reads thousands of nodes. A read that is alone goes at once.
ZooKeeper carries out reads and writes of a session in the order in which it gets them, so a read shows every write that
was answered before it was asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple, TypeAlias

from kazoo.exceptions import NoNodeError

from bookkeeper.metadata.zookeeper_requests import Pending, ZookeeperRequests
from foundation.model.errors import MetadataError
from foundation.zookeeper.many_reads import CHILDREN, DATA, Answer, ManyReads, NodeData

READS_MAX: Final = 64
"""Nodes in a request: each may have 1 MiB, and all answers are in memory at once."""

_Found: TypeAlias = "NodeData | list[str] | None"


class _Read(NamedTuple):
    """One read."""

    kind: int
    """DATA or CHILDREN."""
    path: str
    """Its node."""
    found: asyncio.Future[_Found]
    """The answer; None for a missing node."""


class ZookeeperReads:
    """The reads of one session."""

    def __init__(self, requests: ZookeeperRequests) -> None:
        self._requests = requests
        self._waiting: deque[_Read] = deque()
        self._sender: asyncio.Task[None] | None = None
        """Runs while there are reads to send."""

    async def node(self, path: str) -> NodeData | None:
        """Returns the node as it is, None for a missing one. A node without bytes is returned too.

        Raises MetadataError. A caller that is cancelled cancels only its own wait.
        """
        found = await self._ask(DATA, path)
        assert not isinstance(found, list)
        return found

    async def children(self, path: str) -> list[str]:
        """Returns the names directly below the node, unsorted; none for a missing one. Raises as `node`."""
        found = await self._ask(CHILDREN, path)
        assert not isinstance(found, NodeData)
        return found or []

    async def _ask(self, kind: int, path: str) -> _Found:
        found: asyncio.Future[_Found] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Read(kind, path, found))
        if self._sender is None:
            # A task begins after the callbacks that are ready now, so their reads go along.
            self._sender = asyncio.create_task(self._send(), name="reads of metadata")
        return await found

    async def _send(self) -> None:
        try:
            while self._waiting:
                count = min(len(self._waiting), READS_MAX)
                reads = [self._waiting.popleft() for _ in range(count)]
                # Those who were cancelled during their wait need no answer.
                await self._answer([read for read in reads if not read.found.done()])
        finally:
            self._sender = None

    async def _answer(self, reads: list[_Read]) -> None:
        if not reads:
            return
        answers: list[Answer | MetadataError]
        try:
            answer = await self._requests.ask(lambda: self._begin(reads))
            found = answer.value_or_raise()
            assert isinstance(found, list)
            assert len(found) == len(reads)
            answers = found
        except MetadataError as error:
            answers = [error] * len(reads)
        except Exception as error:  # noqa: BLE001
            # Whatever the library raises, an unknown code of the server perhaps, nobody may wait for ever.
            answers = [MetadataError(f"ZooKeeper's answer is not understood: {error!r}")] * len(reads)
        for read, one in zip(reads, answers, strict=True):
            _settle(read.path, read.found, one)

    def _begin(self, reads: list[_Read]) -> Pending:
        client = self._requests.client
        pending: Pending = client.handler.async_result()
        client._call(ManyReads([(read.kind, read.path) for read in reads]), pending)
        return pending


def _settle(path: str, future: asyncio.Future[_Found], answer: Answer | MetadataError) -> None:
    if future.done():  # The caller was cancelled.
        return
    if isinstance(answer, NodeData | list):
        future.set_result(answer)
    elif isinstance(answer, NoNodeError):
        future.set_result(None)
    elif isinstance(answer, MetadataError):
        # An own one for each: a raised exception collects the frames of those who wait.
        future.set_exception(MetadataError(str(answer)))
    else:
        future.set_exception(
            MetadataError(f"ZooKeeper refused to read {path}: {type(answer).__name__} {answer}")
        )
