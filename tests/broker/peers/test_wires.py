"""Commands to the data ports of other brokers: who gets them, with which proof, and what is not sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from broker.compose.broker_service import BrokerService
from broker.peers.contexts import PeerContexts
from broker.peers.peer_settings import PeerSettings
from broker.peers.wires import Wires
from broker.service.topics.topic_ownership import Addresses
from foundation.model.errors import ServiceNotReady
from foundation.tls.contexts import ClientFiles
from protocol.requests import end_txn_on_partition
from tests.broker.peers.test_peers import AUTHENTICATED, PROVED, TOPIC, brokers, peers_of
from tests.support.certificates import Certificates, put_over
from tests.support.tokens import token

TRANSACTIONS = "transactionCoordinatorEnabled=true"
END = partial(end_txn_on_partition, topic=str(TOPIC), txn=(0, 1), commit=True)


async def own(service: BrokerService) -> None:
    await service.registry.ownership.owner_of(TOPIC, authoritative=True)


async def test_owner_carries_a_command_out_and_another_broker_refuses_it() -> None:
    async with brokers(3, TRANSACTIONS) as (first, second, third):
        await own(second)
        wires = peers_of(first).wires
        await wires.tell(second.addresses, END)
        with pytest.raises(ServiceNotReady, match="not served by this instance"):
            await wires.tell(third.addresses, END)
        # Several at once, over one connection.
        await asyncio.gather(*(wires.tell(second.addresses, END) for _ in range(20)))
        assert len(second.net.connections) == 1


async def test_next_command_connects_again_after_a_connection_has_ended() -> None:
    async with brokers(2, TRANSACTIONS) as (first, second):
        await own(second)
        wires = peers_of(first).wires
        await wires.tell(second.addresses, END)
        for connection in list(second.net.connections):
            connection.close("a test ends it")
        # As a coordinator does: the news of the end may come after the next command was sent.
        with suppress(ServiceNotReady):
            await wires.tell(second.addresses, END)
        await wires.tell(second.addresses, END)


async def test_brokers_prove_who_they_are() -> None:
    async with brokers(2, TRANSACTIONS, *AUTHENTICATED, *PROVED) as (first, second):
        await own(second)
        await peers_of(first).wires.tell(second.addresses, END)


async def test_role_that_is_no_broker_ends_no_transaction() -> None:
    other = (PROVED[0], f"brokerClientAuthenticationParameters=token:{token({'sub': 'somebody'})}")
    async with brokers(2, TRANSACTIONS, *AUTHENTICATED, *other) as (first, second):
        await own(second)
        with pytest.raises(
            ServiceNotReady, match=r"refuses the role of this broker.*the role lacks the right"
        ):
            await peers_of(first).wires.tell(second.addresses, END)


async def test_wrong_token_is_refused_at_the_connection() -> None:
    other = (PROVED[0], "brokerClientAuthenticationParameters=token:wrong")
    async with brokers(2, TRANSACTIONS, *AUTHENTICATED, *other) as (first, second):
        with pytest.raises(ServiceNotReady, match=r"refuses the role of this broker|has ended"):
            await peers_of(first).wires.tell(second.addresses, END)


async def test_nothing_is_sent_without_credentials_where_the_cluster_asks_for_them() -> None:
    async with brokers(2, TRANSACTIONS, *AUTHENTICATED) as (first, second):
        with pytest.raises(ServiceNotReady, match="set brokerClientAuthenticationPlugin"):
            await peers_of(first).wires.tell(second.addresses, END)
        assert not second.net.connections


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[Addresses, list[object]]]:
    """A port that takes connections and says nothing."""
    taken: list[object] = []

    async def keep(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)

    server = await asyncio.start_server(keep, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Addresses(f"pulsar://127.0.0.1:{port}", "http://127.0.0.1:1"), taken
    finally:
        server.close()


async def test_token_goes_to_no_stranger_and_over_no_open_port_where_tls_is_asked_for() -> None:
    async with listener() as (known, taken):
        stranger = Wires(lambda: PeerSettings(proof=("token", "x")), dict, PeerContexts())
        with pytest.raises(ServiceNotReady, match="no broker of this cluster"):
            await stranger.tell(known, END)
        encrypted = Wires(
            lambda: PeerSettings(uses_tls=True), lambda: {known.broker_id: known}, PeerContexts()
        )
        with pytest.raises(ServiceNotReady, match="has no brokerServicePortTls"):
            await encrypted.tell(known, END)
    assert not taken


async def test_broker_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.peers.wires.CONNECT_S", 0.05)
    async with listener() as (known, _):
        wires = Wires(PeerSettings, lambda: {known.broker_id: known}, PeerContexts())
        with pytest.raises(ServiceNotReady, match="does not answer"):
            await wires.tell(known, END)
        await wires.close()


def _tls(made: Certificates, certificate: Path, trusted: Path) -> tuple[str, ...]:
    """Settings of brokers with this certificate, which ask each other over TLS and trust that authority."""
    return (
        "webServicePortTls=0",
        "brokerServicePortTls=0",
        f"tlsCertificateFilePath={certificate}",
        f"tlsKeyFilePath={made.key(certificate)}",
        "brokerClientTlsEnabled=true",
        f"brokerClientTrustCertsFilePath={trusted}",
    )


async def test_broker_whose_certificate_nothing_vouches_for_gets_no_token(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    trusted, other = made.new_authority("one"), made.new_authority("other")
    certificate = made.issue("broker", authority="one")
    async with brokers(2, TRANSACTIONS, *_tls(made, certificate, trusted)) as (first, second):
        await own(second)
        await peers_of(first).wires.tell(second.addresses, END)
        wrong = Wires(
            lambda: PeerSettings(uses_tls=True, files=ClientFiles(trusted=other)),
            lambda: first.registry.ownership.brokers,
            PeerContexts(),
        )
        with pytest.raises(ServiceNotReady, match="does not answer"):
            await wrong.tell(second.addresses, END)
        await wrong.close()


async def test_replaced_authority_holds_for_the_next_connection(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    certificate, trusted = made.issue("broker"), tmp_path / "trusted.pem"
    put_over(made.new_authority("other"), trusted)
    async with brokers(2, TRANSACTIONS, *_tls(made, certificate, trusted)) as (first, second):
        await own(second)
        with pytest.raises(ServiceNotReady, match="does not answer"):
            await peers_of(first).wires.tell(second.addresses, END)
        put_over(made.authority, trusted)
        await peers_of(first).wires.tell(second.addresses, END)
