"""The store in a real ZooKeeper: nodes, lost connections and sessions, ledger ids, available bookies."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.security import make_acl

from bookie_stub.cluster.registration import Registration
from bookkeeper.ensembles.zookeeper_ledger_ids import ZookeeperLedgerIds
from bookkeeper.metadata.available_bookies import AvailableBookies, Bookies
from bookkeeper.metadata.metadata_store import ABSENT, Check, Ephemeral, Put, SessionState, Versioned
from bookkeeper.metadata.write_groups import GROUP_MAX
from bookkeeper.metadata.zookeeper_metadata_store import (
    OPERATION_BYTES,
    REQUEST_BYTES_MAX,
    VALUE_BYTES_MAX,
    ZookeeperMetadataStore,
)
from bookkeeper.metadata.zookeeper_requests import Pending, ZookeeperAnswer, ZookeeperRequests
from bookkeeper.metadata.zookeeper_starts import start_name
from foundation.model.errors import BadVersion, InvalidTopicName, MetadataError, MetadataUnanswered
from foundation.zookeeper.session import ZookeeperSession
from foundation.zookeeper.url import ZookeeperUrl
from tests.bookkeeper.metadata.conftest import open_store
from tests.interop.support import wait_until
from tests.support.java import ZooKeeper
from tests.support.ports import free_port

SESSION_S = 60.0


async def test_close_fails_waiting_writes_while_zookeeper_is_away() -> None:
    client = SimpleNamespace(client_id=(1, b""), stop=lambda: None, close=lambda: None)
    session = ZookeeperSession(client, ZookeeperUrl("zk", ""))
    requests = ZookeeperRequests(session)
    store = ZookeeperMetadataStore(requests, 0.01)
    requests.disconnected()
    await asyncio.sleep(0)
    writes = [asyncio.create_task(store.put("/a", b"%d" % number)) for number in range(3)]
    await asyncio.sleep(0)
    await asyncio.wait_for(store.close(), 60)
    for write in writes:
        with pytest.raises(MetadataError, match="the metadata store is closed"):
            await write


async def test_writes_under_one_check_are_out_together() -> None:
    client = SimpleNamespace(client_id=(1, b""), stop=lambda: None, close=lambda: None)
    requests = ZookeeperRequests(ZookeeperSession(client, ZookeeperUrl("zk", "")))
    store = ZookeeperMetadataStore(requests, 0.01)
    requests.disconnected()
    await asyncio.sleep(0)
    keys = {"/a", "/b", "/c"}
    writes = [
        asyncio.create_task(store.put_all([Put(key, b"1", ABSENT), Check("/lease", 0)])) for key in keys
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert store._groups._out == keys
    await asyncio.wait_for(store.close(), 60)
    assert len(await asyncio.gather(*writes, return_exceptions=True)) == len(keys)


async def test_answered_request_leaves_no_cycle_for_the_garbage_collector() -> None:
    client = SimpleNamespace(client_id=(1, b""), stop=lambda: None, close=lambda: None)
    requests = ZookeeperRequests(ZookeeperSession(client, ZookeeperUrl("zk", "")))
    handler, asked = SequentialThreadingHandler(), []

    def request() -> AsyncResult:
        pending = handler.async_result()
        asked.append(weakref.ref(pending))
        pending.set(b"value")
        return pending

    handler.start()
    gc.collect()
    gc.disable()
    try:
        assert (await requests.ask(request)).value == b"value"
        handler.stop()  # Ends the thread, which refers to the object until its next one.
        assert asked[0]() is None
    finally:
        gc.enable()


async def test_open_names_the_servers_when_no_zookeeper_answers() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(MetadataError, match=f"no ZooKeeper at {address} within 0.3 s"):
        await ZookeeperMetadataStore.open(ZookeeperUrl(address, ""), session_timeout_s=0.3, timeout_s=1)


@pytest.fixture
async def shared(zookeeper: ZooKeeper, root: str) -> AsyncIterator[ZookeeperMetadataStore]:
    opened = await open_store(zookeeper.address, root)
    yield opened
    await opened.close()


@pytest.fixture
def observer(zookeeper: ZooKeeper, root: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=zookeeper.address + root)
    client.start()
    yield client
    client.stop()
    client.close()


async def test_write_that_zookeeper_does_not_permit_fails(
    shared: ZookeeperMetadataStore, observer: KazooClient
) -> None:
    await asyncio.to_thread(observer.create, "/locked", b"", [make_acl("world", "anyone", read=True)])
    with pytest.raises(MetadataError, match="NoAuthError"):
        await asyncio.wait_for(shared.put("/locked/one", b"value", ABSENT), 60)


def end_session(client: KazooClient, hosts: str) -> None:
    """A client that takes a session over and ends it, ends it for its owner too."""
    thief = KazooClient(hosts=hosts, client_id=client.client_id)
    thief.start()
    thief.stop()
    thief.close()


async def become(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


@pytest.mark.peer
@pytest.mark.slow
async def test_key_is_stored_as_a_node(shared: ZookeeperMetadataStore, observer: KazooClient) -> None:
    await shared.put("/managed-ledgers/public/default/persistent/t", b"{}")
    await shared.put("/managed-ledgers/public/default/persistent/t", b'{"a":1}')
    value, stat = await asyncio.to_thread(observer.get, "/managed-ledgers/public/default/persistent/t")
    assert (value, stat.version) == (b'{"a":1}', 1)
    assert await shared.get("/managed-ledgers/public/default") is None, (
        "a parent without a value counts as absent"
    )
    await shared.delete("/managed-ledgers/public/default/persistent/t", 1)
    left = await asyncio.to_thread(observer.get_children, "/")
    assert "managed-ledgers" not in left, "nodes without a value are removed with the last key below them"


@pytest.mark.peer
@pytest.mark.slow
async def test_deletion_beside_other_keys_is_one_write(
    shared: ZookeeperMetadataStore, zookeeper: ZooKeeper
) -> None:
    """ZooKeeper logs a refused deletion of the node above as it logs a write."""
    await shared.put("/a/b", b"1")
    await shared.put("/a/c", b"1")
    before = zookeeper.figures["zxid"]
    await shared.delete("/a/b", 0)
    assert zookeeper.figures["zxid"] == before + 1


@pytest.mark.peer
@pytest.mark.slow
async def test_key_above_another_can_be_put(shared: ZookeeperMetadataStore) -> None:
    await shared.put("/a/b/c", b"1")
    version = await shared.put("/a/b", b"2", ABSENT)
    assert await shared.get("/a/b") == Versioned(b"2", version)
    with pytest.raises(BadVersion):
        await shared.put("/a/b", b"3", ABSENT)
    await shared.delete("/a/b", version)
    assert await shared.get("/a/b") is None
    assert await shared.get("/a/b/c") == Versioned(b"1", 0)


@pytest.mark.peer
@pytest.mark.slow
async def test_keys_and_values_that_no_node_can_have_are_refused(shared: ZookeeperMetadataStore) -> None:
    assert await shared.put("/big", b"x" * VALUE_BYTES_MAX) == 0
    for value in (b"", b"x" * (VALUE_BYTES_MAX + 1)):
        with pytest.raises(MetadataError, match="/v"):
            await shared.put("/v", value)
    for key in ("/a/./b", "/..", "//a", "/a/"):
        with pytest.raises(MetadataError, match="cannot be a node") as refused:
            await shared.put(key, b"v")
        # A topic `..` is the client's mistake, and not the store's.
        assert (refused.value.code, refused.value.status) == (InvalidTopicName.code, 412)


def _of_bytes(bytes_: int, root: str, checked: str) -> list[Put | Check]:
    """Returns writes that are one request of so many bytes, with the path of a check."""
    paths = sum(OPERATION_BYTES + len(root + key) for key in ("/a", "/b", checked))
    return [
        Put("/a", bytes(500_000), ABSENT),
        Put("/b", bytes(bytes_ - 500_000 - paths), ABSENT),
        Check(checked, 0),
    ]


@pytest.mark.peer
@pytest.mark.slow
async def test_largest_request_is_carried_out(shared: ZookeeperMetadataStore, root: str) -> None:
    lease = "/" + "lease" * 10_000
    await shared.put(lease, b"me")
    assert await shared.put_all(_of_bytes(REQUEST_BYTES_MAX, root, lease)) == [0, 0, 0]


async def test_request_that_is_too_large_with_the_paths_of_its_checks_is_refused() -> None:
    client = SimpleNamespace(client_id=(1, b""), stop=lambda: None, close=lambda: None)
    requests = ZookeeperRequests(ZookeeperSession(client, ZookeeperUrl("zk", "/root")))
    store = ZookeeperMetadataStore(requests, 0.01)
    requests.disconnected()  # Requests wait from now on.
    await asyncio.sleep(0)
    with pytest.raises(MetadataError, match=r"/root/a and 2 more: 1048001 bytes, .* takes 1048000"):
        await asyncio.wait_for(
            store.put_all(_of_bytes(REQUEST_BYTES_MAX + 1, "/root", "/" + "lease" * 10_000)), 60
        )
    with pytest.raises(MetadataError, match="/root/b: 0 bytes, and a node of ZooKeeper takes 1 to"):
        await asyncio.wait_for(store.put_all([Put("/a", b"1", ABSENT), Put("/b", b"", ABSENT)]), 60)
    await store.close()


@pytest.mark.peer
@pytest.mark.slow
async def test_expired_session_is_replaced(
    shared: ZookeeperMetadataStore, zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="bookkeeper.metadata.zookeeper_requests")
    version = await shared.put("/a", b"0")
    before = shared.requests.client.client_id
    writing = asyncio.create_task(count_up(shared, version, 300))
    await asyncio.to_thread(end_session, shared.requests.client, zookeeper.address)
    await become(lambda: "in a new session" in caplog.text, "a new session")
    assert await writing == 300
    assert await shared.get("/a") == Versioned(b"300", 300)
    assert shared.requests.client.client_id != before
    assert "the session with ZooKeeper has expired" in caplog.text


@pytest.mark.peer
@pytest.mark.slow
async def test_expired_session_loses_its_leases_and_keeps_its_watches(
    shared: ZookeeperMetadataStore, zookeeper: ZooKeeper, observer: KazooClient
) -> None:
    states: list[SessionState] = []
    told = asyncio.Event()
    shared.listen(states.append)
    await shared.put_all([Ephemeral("/lease", b"me")])
    await shared.watch("/lease", told.set)
    await asyncio.to_thread(end_session, shared.requests.client, zookeeper.address)
    await become(lambda: SessionState.RE_ESTABLISHED in states, "a new session")
    assert states[-2:] == [SessionState.LOST, SessionState.RE_ESTABLISHED]
    await asyncio.wait_for(told.wait(), 60)
    assert await shared.get("/lease") is None
    told.clear()
    await asyncio.to_thread(observer.create, "/lease", b"another")
    await asyncio.wait_for(told.wait(), 60)
    with pytest.raises(BadVersion):
        await shared.put_all([Ephemeral("/lease", b"me")])


@pytest.mark.peer
@pytest.mark.slow
async def test_path_that_is_watched_and_left_has_one_watch(shared: ZookeeperMetadataStore) -> None:
    await shared.put("/quiet/a", b"1")
    for _ in range(20):
        (await shared.watch_children("/quiet", lambda: None))()
        (await shared.watch("/quiet/a", lambda: None))()
    client = shared.requests.client
    kept = [*client._child_watchers.values(), *client._data_watchers.values()]
    assert [len(watchers) for watchers in kept] == [1, 1]


@pytest.mark.peer
@pytest.mark.slow
async def test_deletion_is_not_asked_again_in_a_later_session(
    shared: ZookeeperMetadataStore, zookeeper: ZooKeeper
) -> None:
    """The next holder of a lease may have made the key anew, with the same version."""
    states: list[SessionState] = []
    shared.listen(states.append)
    await shared.put("/a", b"1")
    shared.requests.disconnected()
    await become(lambda: SessionState.SUSPENDED in states, "the pause")
    deleting = asyncio.create_task(shared.delete("/a", 0))
    await asyncio.to_thread(end_session, shared.requests.client, zookeeper.address)
    await become(lambda: SessionState.RE_ESTABLISHED in states, "a new session")
    with pytest.raises(MetadataUnanswered, match="the session with ZooKeeper has ended"):
        await deleting
    assert await shared.get("/a") == Versioned(b"1", 0)
    await shared.delete("/a", 0)


@pytest.mark.peer
@pytest.mark.slow
async def test_write_under_a_lease_is_not_asked_again_in_a_later_session(
    shared: ZookeeperMetadataStore, zookeeper: ZooKeeper
) -> None:
    """Another broker may have the lease by then, with the same version."""
    states: list[SessionState] = []
    shared.listen(states.append)
    await shared.put("/lease", b"1")
    shared.requests.disconnected()
    await become(lambda: SessionState.SUSPENDED in states, "the pause")
    writing = asyncio.create_task(shared.put_all([Put("/list", b"1", ABSENT), Check("/lease", 0)]))
    await asyncio.to_thread(end_session, shared.requests.client, zookeeper.address)
    await become(lambda: SessionState.RE_ESTABLISHED in states, "a new session")
    with pytest.raises(MetadataUnanswered, match="the session with ZooKeeper has ended"):
        await writing
    assert await shared.get("/list") is None


@pytest.mark.peer
@pytest.mark.slow
async def test_lease_does_not_wait_for_the_cursors_before_it(shared: ZookeeperMetadataStore) -> None:
    cursors = [asyncio.create_task(shared.put(f"/cursors/{number}", b"1")) for number in range(5000)]
    await asyncio.sleep(0)
    await shared.put_all([Ephemeral("/lease", b"me")])
    assert sum(write.done() for write in cursors) <= 2 * GROUP_MAX
    await shared.delete("/lease")
    assert sum(write.done() for write in cursors) <= 4 * GROUP_MAX
    await asyncio.gather(*cursors)


@pytest.mark.peer
@pytest.mark.slow
async def test_lease_above_other_keys_is_refused(shared: ZookeeperMetadataStore) -> None:
    await shared.put("/a/b", b"1")
    with pytest.raises(MetadataError, match="/a cannot end with the session: there are keys below it"):
        await shared.put_all([Ephemeral("/a", b"me")])
    await shared.delete("/a/b")
    assert await shared.put_all([Ephemeral("/a", b"me")]) == [0]


async def count_up(store: ZookeeperMetadataStore, version: int, count: int) -> int:
    """Each put compares with the version that the one before it returned."""
    for number in range(version + 1, version + count + 1):
        version = await store.put("/a", b"%d" % number, version)
    return version


async def begin_together(store: ZookeeperMetadataStore, count: int) -> int:
    """Writes an existing key and a new one together, as a log's list and its next ledger."""
    version = ABSENT
    for number in range(count):
        puts = [Put("/list", b"%d" % number, version), Put(f"/l/{number}", b"v", ABSENT)]
        version, fresh = await store.put_all(puts)
        assert fresh == 0
    return version


@pytest.mark.peer
@pytest.mark.slow
async def test_writes_are_applied_once_across_kills_of_zookeeper(mortal: ZooKeeper, root: str) -> None:
    """Compare-and-set by one writer: a write that was carried out without an answer is known as its own."""
    store = await open_store(mortal.address, root)
    version = await store.put("/a", b"0")
    writing = asyncio.create_task(count_up(store, version, 1500))
    creating = [asyncio.create_task(store.put(f"/k/{number}", b"v", ABSENT)) for number in range(600)]
    together = asyncio.create_task(begin_together(store, 600))
    leases = [asyncio.create_task(store.put_all([Ephemeral(f"/e/{number}", b"v")])) for number in range(600)]
    for _ in range(2):
        await asyncio.to_thread(mortal.stop)
        await asyncio.to_thread(mortal.start)
    assert await writing == 1500
    assert set(await asyncio.gather(*creating)) == {0}
    assert len(await store.children("/k")) == 600
    assert await asyncio.gather(*leases) == [[0]] * 600
    assert await together == 599
    assert len(await store.children("/l")) == 600
    await store.close()


@pytest.mark.peer
@pytest.mark.slow
async def test_reads_and_close_time_out_while_zookeeper_is_away(mortal: ZooKeeper, root: str) -> None:
    url = ZookeeperUrl(mortal.address, root)
    store = await ZookeeperMetadataStore.open(url, session_timeout_s=SESSION_S, timeout_s=0.3)
    # No request before: a busy machine may need longer than this for an answer of a ZooKeeper that is there.
    await asyncio.to_thread(mortal.stop)
    with pytest.raises(MetadataUnanswered, match=f"ZooKeeper at {mortal.address} did not answer for /a"):
        await store.get("/a")
    waiting = asyncio.create_task(store.put("/a", b"1"))
    await asyncio.sleep(0)
    await asyncio.wait_for(store.close(), 60)
    with pytest.raises(MetadataError, match="the metadata store is closed"):
        await waiting


@pytest.mark.peer
@pytest.mark.slow
async def test_ledger_ids_are_unique_among_clients_and_share_requests(
    shared: ZookeeperMetadataStore,
    zookeeper: ZooKeeper,
    root: str,
    observer: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = await open_store(zookeeper.address, root)
    one, two = ZookeeperLedgerIds(shared.requests), ZookeeperLedgerIds(other.requests)
    given_out = await asyncio.gather(*((one if number % 3 else two).next() for number in range(200)))
    assert sorted(given_out) == list(range(200))
    assert await one.next(above=202) == 203
    # Those that come while the first request is out share the second one.
    requests: list[object] = []
    ask = shared.requests.ask

    async def counted(request: Callable[[], Pending], *, session_id: int | None = None) -> ZookeeperAnswer:
        requests.append(request)
        return await ask(request, session_id=session_id)

    monkeypatch.setattr(shared.requests, "ask", counted)
    assert sorted(await asyncio.gather(*(one.next() for _ in range(50)))) == list(range(204, 254))
    assert len(requests) <= 4, "two that take, two that remove"
    # A caller does not wait for the removal of a node that has done its work.
    await become(lambda: observer.get_children("/ledgers/idgen") == [], "no node is left")
    await other.close()


@pytest.mark.peer
@pytest.mark.slow
async def test_starts_are_numbered_by_the_counter_of_apaches_brokers_and_outlive_it(
    shared: ZookeeperMetadataStore, zookeeper: ZooKeeper, root: str, observer: KazooClient
) -> None:
    path = "/counters/producer-name"
    apache = observer.create(f"{path}/-", ephemeral=True, sequence=True, makepath=True)
    other = await open_store(zookeeper.address, root)
    names = [await start_name(shared.requests), await start_name(other.requests)]
    later = observer.create(f"{path}/-", ephemeral=True, sequence=True)
    numbers = [int(apache[-10:]), *(int(name.removesuffix("m")) for name in names), int(later[-10:])]
    assert numbers == sorted(set(numbers))
    await other.close()
    observer.delete(apache)
    observer.delete(later)
    # A container with a child stays.
    assert observer.exists(f"{path}/magnetar").ephemeralOwner == 0


@pytest.mark.peer
@pytest.mark.slow
async def test_available_bookies_follow_registrations(
    shared: ZookeeperMetadataStore, zookeeper: ZooKeeper, root: str
) -> None:
    seen: list[Bookies] = []
    available = AvailableBookies(shared.requests, lambda bookies: seen.append(dict(bookies)))
    assert await available.open() == {}

    async def are(**wanted: tuple[str, str | None, bool]) -> None:
        await become(lambda: available.bookies == wanted, f"{wanted}")

    def register(name: str, port: int, http_port: int | None = None) -> Registration:
        uri = ZookeeperUrl(zookeeper.address, f"{root}/ledgers")
        registration = Registration.connect(uri, name, 2.0)
        registration.announce("127.0.0.1", port, http_port, read_only=False)
        return registration

    first = await asyncio.to_thread(register, "first", 1)
    await are(first=("127.0.0.1:1", None, False))
    second = await asyncio.to_thread(register, "second", 2, 8000)
    await are(first=("127.0.0.1:1", None, False), second=("127.0.0.1:2", "127.0.0.1:8000", False))
    await asyncio.to_thread(second.announce, "127.0.0.1", 2, 8000, read_only=True)
    await are(first=("127.0.0.1:1", None, False), second=("127.0.0.1:2", "127.0.0.1:8000", True))
    await asyncio.to_thread(first.close)
    await are(second=("127.0.0.1:2", "127.0.0.1:8000", True))
    # A change during an expired session is seen in the next one.
    await asyncio.to_thread(end_session, shared.requests.client, zookeeper.address)
    first = await asyncio.to_thread(register, "first", 3)
    await are(first=("127.0.0.1:3", None, False), second=("127.0.0.1:2", "127.0.0.1:8000", True))
    assert seen[-1] == available.bookies
    for registration in (first, second):
        await asyncio.to_thread(registration.close)
    await are()
    await available.close()


@pytest.mark.peer
@pytest.mark.slow
async def test_available_bookies_are_followed_after_a_refused_read(
    shared: ZookeeperMetadataStore,
    observer: KazooClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = "/ledgers/available"
    await asyncio.to_thread(observer.create, f"{folder}/one:1", b"", makepath=True)
    available = AvailableBookies(shared.requests, lambda _: None)
    assert await available.open() == {"one:1": ("one:1", None, False)}
    # The broker may not read this node. The refusal sets no watch, so only a repeated read finds a later change.
    hidden = make_acl("world", "anyone", write=True, delete=True, admin=True)
    await asyncio.to_thread(observer.create, f"{folder}/two:2", b"", [hidden])
    await become(lambda: "not known" in caplog.text, "a log line")
    await asyncio.to_thread(observer.set_acls, f"{folder}/two:2", [make_acl("world", "anyone", all=True)])
    await become(lambda: "two:2" in available.bookies, "the new bookie")
    await asyncio.to_thread(observer.delete, f"{folder}/one:1")
    await become(lambda: available.bookies == {"two:2": ("two:2", None, False)}, "a later change")
    assert caplog.text.count("not known") == 1
    await available.close()
