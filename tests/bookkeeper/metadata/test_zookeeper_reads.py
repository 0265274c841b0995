"""Reads of nodes that go together in one request, with a ZooKeeper that answers when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError

from bookkeeper.metadata.zookeeper_reads import READS_MAX, ZookeeperReads
from bookkeeper.metadata.zookeeper_requests import Pending, ZookeeperRequests
from foundation.model.errors import MetadataError
from foundation.zookeeper.many_reads import Answer, ManyReads, NodeData
from foundation.zookeeper.session import ZookeeperSession
from foundation.zookeeper.url import ZookeeperUrl


class Request:
    """A request that is out."""

    def __init__(self) -> None:
        self.paths: tuple[str, ...] = ()
        self.exception: BaseException | None = None
        self._answers: list[Answer] = []
        self._tell: Callable[[Pending], object] = lambda _: None

    def rawlink(self, callback: Callable[[Pending], object]) -> None:
        self._tell = callback

    def get_nowait(self) -> object:
        return self._answers

    def answer(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._tell(self)


class World:
    """Reads over a session whose requests wait for the test."""

    def __init__(self) -> None:
        self.out: asyncio.Queue[Request] = asyncio.Queue()
        """Requests that the test has not answered."""
        self._client = SimpleNamespace(
            client_id=(1, b""),
            handler=SimpleNamespace(async_result=Request),
            _call=self._call,
            stop=lambda: None,
            close=lambda: None,
        )
        self.requests = ZookeeperRequests(ZookeeperSession(self._client, ZookeeperUrl("zk", "")))
        self.reads = ZookeeperReads(self.requests)

    def _call(self, request: ManyReads, pending: Request) -> None:
        pending.paths = tuple(path for _, path in request.reads)
        self.out.put_nowait(pending)

    def read(self, *paths: str) -> list[asyncio.Task[NodeData | None]]:
        return [asyncio.create_task(self.reads.node(path)) for path in paths]


def node(text: str) -> NodeData:
    return NodeData(text.encode(), 7, 0, 0)


async def test_reads_that_are_asked_while_a_request_is_out_go_together_in_the_next() -> None:
    world = World()
    (first,) = world.read("/a")
    out = await world.out.get()
    assert out.paths == ("/a",)
    others = world.read("/b", "/none", "/forbidden", "/c")
    await asyncio.sleep(0)
    out.answer(node("A"))
    assert await first == node("A")
    out = await world.out.get()
    assert out.paths == ("/b", "/none", "/forbidden", "/c")
    out.answer(node("B"), NoNodeError(), NoAuthError(), node("C"))
    found = await asyncio.gather(*others, return_exceptions=True)
    assert [found[0], found[1], found[3]] == [node("B"), None, node("C")]
    assert str(found[2]) == "ZooKeeper refused to read /forbidden: NoAuthError "
    # One that comes when nothing is out is asked at once.
    (last,) = world.read("/d")
    (await world.out.get()).answer(node("D"))
    assert await last == node("D")


async def test_names_below_a_node_are_asked_with_the_nodes() -> None:
    world = World()
    (first,) = world.read("/a")
    names, none = (asyncio.create_task(world.reads.children(path)) for path in ("/a", "/none"))
    out = await world.out.get()
    assert out.paths == ("/a", "/a", "/none")
    out.answer(node("A"), ["y", "x"], NoNodeError())
    assert await first == node("A")
    assert [await names, await none] == [["y", "x"], []]


async def test_request_has_a_limited_number_of_reads() -> None:
    world = World()
    reads = world.read(*(f"/{number}" for number in range(READS_MAX + 1)))
    first = await world.out.get()
    assert len(first.paths) == READS_MAX
    first.answer(*(node(path) for path in first.paths))
    (await world.out.get()).answer(node("last"))
    assert await asyncio.gather(*reads) == [
        *(node(f"/{number}") for number in range(READS_MAX)),
        node("last"),
    ]


async def test_cancelled_read_leaves_the_others_alone_and_is_not_asked() -> None:
    world = World()
    first, second = world.read("/a", "/b")
    out = await world.out.get()
    third, fourth = world.read("/c", "/d")
    await asyncio.sleep(0)
    first.cancel()
    third.cancel()
    await asyncio.wait((first, third))
    out.answer(node("A"), node("B"))
    assert await second == node("B")
    out = await world.out.get()
    assert out.paths == ("/d",)
    out.answer(node("D"))
    assert await fourth == node("D")


async def test_every_read_fails_when_the_store_is_closed() -> None:
    world = World()
    world.requests.disconnected()
    await asyncio.sleep(0)
    reads = world.read(*(f"/{number}" for number in range(READS_MAX + 1)))
    await asyncio.sleep(0)
    await world.requests.close()
    for read in reads:
        with pytest.raises(MetadataError, match="the metadata store is closed"):
            await read
    assert world.out.empty()


async def test_an_error_that_nobody_expects_leaves_no_read_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    ask = world.requests.ask

    async def broken(*_: object) -> object:
        monkeypatch.setattr(world.requests, "ask", ask)
        raise RuntimeError("an unknown code")

    monkeypatch.setattr(world.requests, "ask", broken)
    first = world.read("/a", "/b")
    await asyncio.sleep(0)
    later = world.read("/c")
    for read in first:
        with pytest.raises(MetadataError, match="unknown code"):
            await read
    (await world.out.get()).answer(node("C"))
    assert await later[0] == node("C")
