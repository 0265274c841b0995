"""Requests to other brokers: who gets them, with which proof, and what is not sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.cluster.ownership import ClusterOwnership
from broker.compose.broker_service import BrokerService
from broker.config import load_broker_settings
from broker.peers import peers as peers_module
from broker.peers.peer_settings import PeerSettings
from broker.peers.peers import PeerRefused, Peers
from broker.service.topics.topic_ownership import Addresses
from foundation.model.errors import ServiceNotReady
from foundation.model.topic_name import parse_topic_name
from foundation.tls.contexts import ClientFiles
from tests.support.certificates import Certificates
from tests.support.memory_broker import memory_broker
from tests.support.ports import free_port
from tests.support.tokens import SECRET_URL, token

TOPIC = parse_topic_name("persistent://public/default/t")
AUTHENTICATED = (
    "authenticationEnabled=true",
    "authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    f"tokenSecretKey={SECRET_URL}",
    "authorizationEnabled=true",
    "superUserRoles=brokers",
)
PROVED = (
    "brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken",
    f"brokerClientAuthenticationParameters=token:{token({'sub': 'brokers'})}",
)


@asynccontextmanager
async def brokers(count: int, *overrides: str) -> AsyncIterator[list[BrokerService]]:
    first = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(memory_broker(*overrides, metadata=store))
            for store in (first, *(first.another() for _ in range(count - 1)))
        ]


def peers_of(service: BrokerService) -> Peers:
    ownership = service.registry.ownership
    assert isinstance(ownership, ClusterOwnership)
    return ownership.peers


async def test_chosen_broker_takes_a_bundle_and_others_name_it() -> None:
    async with brokers(3) as (first, second, third):
        owner = await peers_of(first).find_owner(TOPIC, third.addresses, authoritative=True)
        assert owner == third.addresses
        assert (
            await peers_of(second).find_owner(TOPIC, first.addresses, authoritative=False) == third.addresses
        )


async def test_request_follows_from_broker_to_broker() -> None:
    async with brokers(3) as (first, second, third):
        # The second one sends it to the leader, which may choose any of them.
        owner = await peers_of(first).find_owner(TOPIC, second.addresses, authoritative=False)
        assert owner in [one.addresses for one in (first, second, third)]
        assert (await third.registry.ownership.owner_of(TOPIC)).addresses == owner


async def test_refusal_has_the_status_and_the_words_of_the_other_broker() -> None:
    async with brokers(2) as (first, second):
        with pytest.raises(PeerRefused, match="Namespace") as raised:
            await peers_of(first).request(
                second.addresses, "GET", "/admin/v2/namespaces/public/missing/bundles"
            )
        assert raised.value.status == 404


async def test_brokers_prove_who_they_are() -> None:
    async with brokers(2, *AUTHENTICATED, *PROVED) as (first, second):
        owner = await peers_of(first).find_owner(TOPIC, second.addresses, authoritative=True)
        assert owner == second.addresses


async def test_nothing_is_sent_without_credentials_where_the_cluster_asks_for_them() -> None:
    async with brokers(2, *AUTHENTICATED) as (first, second):
        with pytest.raises(ServiceNotReady, match="set brokerClientAuthenticationPlugin"):
            await peers_of(first).find_owner(TOPIC, second.addresses, authoritative=True)


@asynccontextmanager
async def server(handler: Callable[[web.Request], web.Response]) -> AsyncIterator[Addresses]:
    """A broker that answers as `handler` says."""

    async def answer(request: web.Request) -> web.Response:
        return handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield Addresses("pulsar://127.0.0.1:1", f"http://{host}:{port}")
    finally:
        await runner.cleanup()


async def test_token_goes_to_no_stranger() -> None:
    asked: list[str | None] = []

    def note(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Authorization"))
        return web.json_response({})

    async with server(note) as stranger, server(_to(stranger)) as known:
        peers = Peers(lambda: PeerSettings(headers={"Authorization": "Bearer x"}))
        peers.brokers = lambda: {known.broker_id: known}
        with pytest.raises(ServiceNotReady, match="no broker of this cluster"):
            await peers.request(known, "GET", "/a")
        with pytest.raises(ServiceNotReady, match="no broker of this cluster"):
            await peers.request(stranger, "GET", "/a")
        await peers.close()
    assert asked == []


async def test_broker_that_stands_still_is_named_before_the_clients_own_request_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (
        load_broker_settings(None, environ={}).int("magnetarHttpRequestTimeoutSeconds")
        > peers_module.TIMEOUT_S
    )
    monkeypatch.setattr(peers_module, "TIMEOUT_S", 0.05)
    listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()[:2]
    silent = Addresses("pulsar://127.0.0.1:1", f"http://{host}:{port}")
    peers = Peers(lambda: PeerSettings())
    peers.brokers = lambda: {silent.broker_id: silent}
    with pytest.raises(ServiceNotReady, match=rf"broker {host}:{port} has not finished within 0.05 s"):
        await asyncio.wait_for(peers.request(silent, "GET", "/a"), 60)
    await peers.close()
    listening.close()


async def test_broker_without_a_connection_is_said_not_to_answer() -> None:
    port = free_port()
    missing = Addresses("pulsar://127.0.0.1:1", f"http://127.0.0.1:{port}")
    peers = Peers(lambda: PeerSettings())
    peers.brokers = lambda: {missing.broker_id: missing}
    with pytest.raises(ServiceNotReady, match=rf"broker 127.0.0.1:{port} does not answer: Cannot connect"):
        await peers.request(missing, "GET", "/a")
    await peers.close()


async def test_open_websockets_leave_connections_for_requests() -> None:
    app = web.Application()

    async def serve(request: web.Request) -> web.StreamResponse:
        if request.path == "/a":
            return web.Response()
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for _ in socket:
            pass
        return socket

    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    known = Addresses("pulsar://127.0.0.1:1", f"http://{host}:{port}")
    peers = Peers(lambda: PeerSettings())
    peers.brokers = lambda: {known.broker_id: known}
    # One more than aiohttp's default number of connections.
    sockets = [await peers.web_socket(known, "/ws/v2", {}) for _ in range(101)]
    assert (await peers.request(known, "GET", "/a")).body is None
    for socket in sockets:
        await socket.close()
    await peers.close()
    await runner.cleanup()


async def test_brokers_that_send_a_request_round_are_asked_three_times() -> None:
    asked: list[str] = []

    def again(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=307, headers={"Location": str(request.url)})

    async with server(again) as known:
        peers = Peers(lambda: PeerSettings())
        peers.brokers = lambda: {known.broker_id: known}
        with pytest.raises(ServiceNotReady, match="sent on 3 times"):
            await peers.request(known, "GET", "/a")
        await peers.close()
    assert asked == ["/a"] * 3


async def test_nothing_is_sent_in_the_clear_where_tls_is_asked_for() -> None:
    def never(request: web.Request) -> web.Response:
        raise AssertionError(request.path)

    async with server(never) as known:
        peers = Peers(lambda: PeerSettings(uses_tls=True))
        peers.brokers = lambda: {known.broker_id: known}
        with pytest.raises(ServiceNotReady, match="has no webServicePortTls"):
            await peers.request(known, "GET", "/a")
        await peers.close()


async def test_broker_whose_certificate_nothing_vouches_for_gets_no_token(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    trusted, other = made.new_authority("one"), made.new_authority("other")
    certificate = made.issue("broker", authority="one")
    tls = (
        "webServicePortTls=0",
        f"tlsCertificateFilePath={certificate}",
        f"tlsKeyFilePath={made.key(certificate)}",
        "brokerClientTlsEnabled=true",
    )
    async with brokers(2, *tls, f"brokerClientTrustCertsFilePath={trusted}") as (first, second):
        assert (
            await peers_of(first).find_owner(TOPIC, second.addresses, authoritative=True) == second.addresses
        )
        wrong = Peers(lambda: PeerSettings(uses_tls=True, files=ClientFiles(trusted=other)))
        wrong.brokers = lambda: first.registry.ownership.brokers
        with pytest.raises(ServiceNotReady, match="does not answer"):
            await wrong.find_owner(TOPIC, second.addresses, authoritative=True)
        await wrong.close()


def _to(stranger: Addresses) -> Callable[[web.Request], web.Response]:
    return lambda _: web.Response(status=307, headers={"Location": f"{stranger.admin_url}/a"})


async def test_changed_credentials_hold_for_the_next_request() -> None:
    found: list[str | None] = []

    def note(request: web.Request) -> web.Response:
        found.append(request.headers.get("Authorization"))
        return web.json_response({})

    async with server(note) as known:
        tokens = iter(("Bearer one", "Bearer two"))
        peers = Peers(lambda: PeerSettings(headers={"Authorization": next(tokens)}))
        peers.brokers = lambda: {known.broker_id: known}
        await peers.request(known, "GET", "/a")
        await peers.request(known, "GET", "/a")
        await peers.close()
    assert found == ["Bearer one", "Bearer two"]
