"""Clients of Pulsar 5.0 hear of transaction coordinators whose owners change."""

from __future__ import annotations

from typing import cast

from broker.service.lifecycle.coordinator_watches import INTERVAL_S, WATCHES_MAX
from broker.service.topics.topic_ownership import Addresses, Owner, TopicOwnership
from broker.service.transactions.coordinators import Coordinators
from foundation.model.errors import ServiceNotReady
from protocol.pulsar_api_pb2 import BaseCommand, CommandWatchTcAssignmentsUpdate, ServerError
from tests.fakes.client import Client, Port
from tests.fakes.stage import Stage


class ThreeCoordinators:
    async def count(self) -> int:
        return 3


class Shared(TopicOwnership):
    """Coordinators on brokers as a test says; each has a bundle of its own."""

    is_shared = True

    def __init__(self) -> None:
        super().__init__()
        self.owners: list[str | None] = ["one", "two", None]
        self.fails = False

    def bundle_of(self, name: object) -> str:
        return str(name).rpartition("-")[2]

    async def owner_of_bundle(self, bundle: str, *, authoritative: bool = False) -> Owner:
        if self.fails:
            raise ServiceNotReady("the store does not answer")
        owner = self.owners[int(bundle)]
        if owner is None:
            return Owner(Addresses("pulsar://leader:1"), is_redirect=True)
        return Owner(Addresses(f"pulsar://{owner}:1"))


class Cluster:
    """A broker of several with a client that watches."""

    def __init__(self) -> None:
        self.ownership = Shared()
        stage = Stage()
        stage.registry.ownership = self.ownership
        self.port = Port(stage, scalable_topics=True, coordinators_watched=True)
        self.port.context.coordinators = cast("Coordinators", ThreeCoordinators())

    async def client(self) -> Client:
        return await self.port.client()

    async def look(self) -> None:
        """Runs the timers of looks at the owners, and no keep-alive."""
        stage = self.port.stage
        due = [callback for seconds, callback in stage.timers if seconds == INTERVAL_S]
        stage.timers = [one for one in stage.timers if one[0] != INTERVAL_S]
        for callback in due:
            callback()
        await stage.settle()

    @property
    def looks_planned(self) -> int:
        return sum(seconds == INTERVAL_S for seconds, _ in self.port.stage.timers)

    @property
    def watches(self) -> int:
        return len(self.port.context.coordinator_watches)


def watch(client: Client, watch_id: int = 1) -> None:
    client.say(BaseCommand.WATCH_TC_ASSIGNMENTS, "watchTcAssignments", watch_id=watch_id)


async def told(client: Client) -> list[dict[int, str]]:
    """The owners in each update that came."""
    updates: list[CommandWatchTcAssignmentsUpdate] = [
        one.watchTcAssignmentsUpdate for one in await client.hear()
    ]
    assert all(one.snapshot.parallelism == 3 for one in updates)
    return [{each.tc_id: each.broker_service_url for each in one.snapshot.assignments} for one in updates]


async def test_new_owners_are_told_and_a_coordinator_without_an_owner_is_left_out() -> None:
    cluster = Cluster()
    client = await cluster.client()
    watch(client)
    assert await told(client) == [{0: "pulsar://one:1", 1: "pulsar://two:1"}]
    await cluster.look()
    assert await told(client) == [], "nothing has changed"
    cluster.ownership.owners = ["two", "two", "three"]
    await cluster.look()
    assert await told(client) == [{0: "pulsar://two:1", 1: "pulsar://two:1", 2: "pulsar://three:1"}]
    await cluster.look()
    assert await told(client) == []


async def test_watch_goes_on_after_the_store_has_not_answered() -> None:
    cluster = Cluster()
    client = await cluster.client()
    watch(client)
    assert len(await told(client)) == 1
    cluster.ownership.fails, cluster.ownership.owners[0] = True, "three"
    await cluster.look()
    assert await told(client) == []
    cluster.ownership.fails = False
    await cluster.look()
    assert await told(client) == [{0: "pulsar://three:1", 1: "pulsar://two:1"}]


async def test_client_that_does_not_read_is_told_once_of_the_newest_owners() -> None:
    cluster = Cluster()
    client = await cluster.client()
    watch(client)
    assert len(await told(client)) == 1
    client.cnx.pause_writing()
    for owner in ("a", "b", "c"):
        cluster.ownership.owners[0] = owner
        await cluster.look()
        assert await told(client) == []
    client.cnx.resume_writing()
    await cluster.look()
    assert await told(client) == [{0: "pulsar://c:1", 1: "pulsar://two:1"}]


async def test_closed_watch_and_lost_connection_leave_nothing() -> None:
    cluster = Cluster()
    first, second = await cluster.client(), await cluster.client()
    for client in (first, second):
        watch(client)
        watch(client, 2)
        assert len(await told(client)) == 2
    assert cluster.watches == 4
    first.say(BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE, "watchTcAssignmentsClose", watch_id=1)
    cluster.ownership.owners[0] = "three"
    await cluster.look()
    assert (len(await told(first)), len(await told(second))) == (1, 2)
    first.say(BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE, "watchTcAssignmentsClose", watch_id=2)
    second.cnx.connection_lost(None)
    assert cluster.watches == 0
    await cluster.look()
    assert cluster.looks_planned == 0
    watch(first)
    assert len(await told(first)) == 1
    assert cluster.looks_planned == 1


async def test_connection_has_a_limit_of_watches() -> None:
    cluster = Cluster()
    client = await cluster.client()
    for watch_id in range(WATCHES_MAX + 1):
        watch(client, watch_id)
    *_, refused = await client.hear()
    assert refused.watchTcAssignmentsUpdate.error == ServerError.NotAllowedError
    assert cluster.watches == WATCHES_MAX
    watch(client, 0)
    (again,) = await client.hear()
    assert not again.watchTcAssignmentsUpdate.HasField("error")


async def test_broker_alone_on_its_store_keeps_no_watch() -> None:
    cluster = Cluster()
    cluster.port.stage.registry.ownership = TopicOwnership(Addresses("pulsar://here:1"))
    client = await cluster.client()
    watch(client)
    assert await told(client) == [dict.fromkeys(range(3), "pulsar://here:1")]
    assert cluster.watches == 0
