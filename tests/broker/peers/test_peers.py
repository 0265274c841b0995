"""Requests to other brokers: who gets them, with which proof, and what is not sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import aiohttp
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
from foundation.tls.contexts import ClientFiles, ServerFiles, server_context
from foundation.tls.listener import common_name
from tests.support.certificates import Certificates, put_over
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


Handler = Callable[[web.Request], web.StreamResponse | Awaitable[web.StreamResponse]]


@asynccontextmanager
async def server(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Addresses]:
    """A broker that answers as `handler` says."""

    async def answer(request: web.Request) -> web.StreamResponse:
        found = handler(request)
        return found if isinstance(found, web.StreamResponse) else await found

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        if tls is None:
            yield Addresses("pulsar://127.0.0.1:1", f"http://{host}:{port}")
        else:
            yield Addresses(admin_url_tls=f"https://{host}:{port}")
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


def over_tls(files: ClientFiles, *known: Addresses) -> Peers:
    peers = Peers(lambda: PeerSettings(uses_tls=True, files=files))
    peers.brokers = lambda: {one.broker_id: one for one in known}
    return peers


def context_of(made: Certificates, certificate: Path) -> ssl.SSLContext:
    files = ServerFiles(certificate=certificate, key=made.key(certificate), trusted=made.authority)
    return server_context(files)


async def test_first_requests_together_over_tls_share_a_session_and_are_all_answered(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    async with server(lambda _: web.json_response({}), context_of(made, made.server)) as known:
        peers = over_tls(ClientFiles(trusted=made.authority), known)
        with patch.object(aiohttp, "ClientSession", wraps=aiohttp.ClientSession) as session:
            await asyncio.gather(*(peers.request(known, "GET", "/a") for _ in range(6)))
        await peers.close()
    assert session.call_count == 1


async def test_replaced_files_hold_for_the_next_request_and_break_none_under_way(tmp_path: Path) -> None:
    made, trusted = Certificates(tmp_path), tmp_path / "trusted.pem"
    put_over(made.authority, trusted)
    authority = made.new_authority("new")
    arrived, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.StreamResponse:
        arrived.set()
        await goes_on.wait()
        return web.json_response("slow")

    renewed = made.issue("renewed", authority="new")
    async with (
        server(slow, context_of(made, made.server)) as former,
        server(lambda _: web.json_response("new"), context_of(made, renewed)) as known,
    ):
        peers = over_tls(ClientFiles(trusted=trusted), former, known)
        under_way = asyncio.ensure_future(peers.request(former, "GET", "/a"))
        await arrived.wait()
        with pytest.raises(ServiceNotReady, match="CERTIFICATE_VERIFY_FAILED"):
            await peers.request(known, "GET", "/a")
        put_over(authority, trusted)
        assert (await peers.request(known, "GET", "/a")).body == "new"
        goes_on.set()
        assert (await under_way).body == "slow"
        # The former authority is trusted no more.
        with pytest.raises(ServiceNotReady, match="CERTIFICATE_VERIFY_FAILED"):
            await peers.request(former, "GET", "/a")
        await peers.close()


async def test_replaced_client_certificate_is_shown_by_the_next_request_and_the_next_websocket(
    tmp_path: Path,
) -> None:
    made, shown = Certificates(tmp_path), list[str | None]()

    async def note(request: web.Request) -> web.StreamResponse:
        shown.append(common_name(request.transport))
        if "Upgrade" not in request.headers:
            return web.json_response({})
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        return socket

    files = ClientFiles(trusted=made.authority, certificate=made.client, key=made.key(made.client))
    async with server(note, context_of(made, made.server)) as known:
        peers = over_tls(files, known)

        async def ask() -> None:
            await peers.request(known, "GET", "/a")
            await (await peers.web_socket(known, "/ws", {})).close()

        await ask()
        other = made.issue("other")
        put_over(other, made.client)
        put_over(made.key(other), made.key(made.client))
        await ask()
        await peers.close()
    assert shown == ["client", "client", "other", "other"]


@pytest.mark.parametrize("status", [401, 403])
async def test_refusal_of_the_brokers_own_role_is_not_told_as_the_clients(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: web.Request) -> web.Response:
        return web.json_response({"reason": "Unauthorized to GET /a: needs superuser"}, status=status)

    async with server(refuse) as known:
        peers = Peers(lambda: PeerSettings())
        peers.brokers = lambda: {known.broker_id: known}
        words = (
            f"broker {known.broker_id} refuses the role of this broker, which brokerClientAuthenticationPlugin "
            "and brokerClientAuthenticationParameters prove: superUserRoles there must have it"
        )
        for _ in range(2):
            with pytest.raises(PeerRefused, match=f"{words}.*needs superuser") as raised:
                await peers.request(known, "GET", "/a")
            assert raised.value.status == 503
        with pytest.raises(PeerRefused, match=words) as raised:
            await peers.web_socket(known, "/ws", {})
        assert raised.value.status == 503
        await peers.close()
    assert len([line for line in caplog.messages if words in line]) == 1


async def test_weak_role_of_a_broker_is_named_to_the_administrator_whose_own_rights_are_checked_first() -> (
    None
):
    weak = (PROVED[0], f"brokerClientAuthenticationParameters=token:{token({'sub': 'weak'})}")
    async with (
        brokers(2, *AUTHENTICATED, *weak) as (first, second),
        aiohttp.ClientSession() as session,
    ):
        await second.registry.ownership.owner_of(TOPIC, authoritative=True)
        url = f"{first.addresses.admin_url}/admin/v2/namespaces/public/default/clearBacklog"

        async def ask(role: str) -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {token({'sub': role})}"}
            async with session.post(url, headers=headers) as answer:
                return answer.status, str((await answer.json())["reason"])

        status, reason = await ask("brokers")
        assert status == 503
        assert "refuses the role of this broker, which brokerClientAuthenticationPlugin" in reason
        status, reason = await ask("stranger")
        assert status == 403
        assert "refuses the role of this broker" not in reason
