"""Lookups of a bundle whose owner was killed: until when they wait, and for whom they do not."""

from __future__ import annotations

import asyncio
import itertools
import socket
from contextlib import ExitStack

import pytest

from broker.cluster import dead_owners
from broker.cluster.dead_owners import PROBE_EVERY_NS, DeadOwners
from broker.service.topics.topic_ownership import Addresses
from tests.support.ports import free_port

BUNDLE = "shop/orders/0x00000000_0x40000000"
NEXT = Addresses("pulsar://next:1", "http://next:2")


class Node:
    """The node of a bundle: how often it was read, and its owner after so many reads."""

    def __init__(self, owner: Addresses, later: Addresses | None, after: int) -> None:
        self.reads = 0
        self._owner, self._later, self._after = owner, later, after

    async def current(self, bundle: str) -> Addresses | None:
        assert bundle == BUNDLE
        self.reads += 1
        return self._later if self.reads > self._after else self._owner


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_owners, "_LOOK_S", 0.001)


def killed() -> Addresses:
    return Addresses(f"pulsar://127.0.0.1:{free_port()}", "http://127.0.0.1:1")


def port_of(owner: Addresses) -> int:
    return int(owner.service_url.rpartition(":")[2])


@pytest.mark.parametrize("later", [None, NEXT])
async def test_lookups_of_a_killed_owner_wait_together_for_the_end_of_its_session(
    later: Addresses | None,
) -> None:
    owner = killed()
    node = Node(owner, later, after=3)
    owners = DeadOwners(lambda: 0, wait_s=60)
    found = await asyncio.gather(*(owners.successor(BUNDLE, owner, node.current) for _ in range(20)))
    assert found == [later] * 20
    assert node.reads == 4, "one wait for all of them"


async def test_living_owner_is_the_answer_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        owner = Addresses(f"pulsar://127.0.0.1:{server.getsockname()[1]}", "http://127.0.0.1:1")
        node = Node(owner, None, after=0)
        owners = DeadOwners(lambda: 0, wait_s=60)
        for _ in range(5):
            assert await owners.successor(BUNDLE, owner, node.current) == owner
        assert node.reads == 0
        server.settimeout(5)
        server.accept()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()  # One connection a second is tried, not one for each lookup.


async def test_owner_whose_session_goes_on_is_the_answer_after_the_wait() -> None:
    owner = killed()
    node = Node(owner, None, after=10**9)
    assert await DeadOwners(lambda: 0, wait_s=0.01).successor(BUNDLE, owner, node.current) == owner
    assert node.reads == 10


async def test_owner_that_listens_again_during_the_wait_is_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = killed()
    seconds = itertools.count(1)
    # Each question for the time finds that a second has passed.
    owners = DeadOwners(lambda: next(seconds) * (PROBE_EVERY_NS + 1), wait_s=10**9)
    with ExitStack() as stack:

        async def current(bundle: str) -> Addresses | None:
            if next(looks) == 3:
                stack.enter_context(socket.create_server(("127.0.0.1", port_of(owner))))
            return owner

        looks = itertools.count()
        assert await asyncio.wait_for(owners.successor(BUNDLE, owner, current), 60) == owner
        assert next(looks) == 4
    assert caplog.text.count("nobody listens") == 1


async def test_refused_connection_is_known_for_a_second() -> None:
    owner, clock = killed(), [1]
    node = Node(owner, None, after=10**9)
    owners = DeadOwners(lambda: clock[0], wait_s=0.002)
    await owners.successor(BUNDLE, owner, node.current)
    with socket.create_server(("127.0.0.1", port_of(owner))):
        reads = node.reads
        await owners.successor(BUNDLE, owner, node.current)
        assert node.reads > reads
        clock[0] += PROBE_EVERY_NS + 1
        reads = node.reads
        await owners.successor(BUNDLE, owner, node.current)
        assert node.reads == reads


async def test_owner_whose_name_has_two_addresses_is_dead_when_both_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def two(host: str, port: int) -> list[str]:
        assert (host, port) == ("a-host", port_of(owner))
        return ["127.0.0.1", "127.0.0.2"]

    monkeypatch.setattr(dead_owners, "_addresses_of", two)
    owner = Addresses(f"pulsar://a-host:{free_port()}", "http://a-host:1")
    node = Node(owner, NEXT, after=1)
    assert await DeadOwners(lambda: 0, wait_s=1).successor(BUNDLE, owner, node.current) == NEXT
    assert node.reads == 2
    with socket.create_server(("127.0.0.2", port_of(owner))):
        assert await DeadOwners(lambda: 0, wait_s=1).successor(BUNDLE, owner, node.current) == owner


async def test_host_is_tried_at_each_of_its_addresses() -> None:
    assert "127.0.0.1" in await dead_owners._addresses_of("localhost", 1)
