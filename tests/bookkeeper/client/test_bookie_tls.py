"""Connections to a real bookie that begin with START_TLS, and bookies that cannot be trusted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from bookie_stub.config.keys import TLS_FACTORY
from bookkeeper.client.bookkeeper import BookKeeperLedgerClient
from broker.compose.tls_contexts import bookie_certificates
from broker.config import load_broker_settings
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.settings.errors import SettingsError
from tests.support.bookies import BookieProcess
from tests.support.certificates import Certificates

FRAME_BYTES_MAX = 1 << 20


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def bookie_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., BookieProcess]]:
    started = []

    def start(settings: dict[str, str]) -> BookieProcess:
        started.append(BookieProcess(tmp_path_factory.mktemp("bookie"), settings))
        started[-1].spawn()
        started[-1].wait_ready()
        return started[-1]

    yield start
    for one in started:
        one.kill()


def server_settings(certificates: Certificates, **more: str) -> dict[str, str]:
    return {
        "tlsProviderFactoryClass": TLS_FACTORY,
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(certificates.key(certificates.server)),
        "tlsCertificatePath": str(certificates.server),
        **more,
    }


@pytest.fixture
async def client_of() -> AsyncIterator[Callable[..., BookKeeperLedgerClient]]:
    made: list[BookKeeperLedgerClient] = []

    def make(bookie: BookieProcess, **keys: object) -> BookKeeperLedgerClient:
        overrides = [f"{name}={value}" for name, value in keys.items()]
        settings = load_broker_settings(None, environ={}, overrides=overrides, profile=None)
        turn = Turn(asyncio.get_running_loop().call_soon, clock.monotonic_ns)
        made.append(
            BookKeeperLedgerClient(
                bookie.address,
                turn=turn,
                frame_bytes_max=FRAME_BYTES_MAX,
                tls=bookie_certificates(settings),
            )
        )
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("no TLS", "offers no TLS (status"),
        ("stranger", "TLS handshake failed: certificate verify failed"),
        ("another name", "TLS handshake failed: certificate verify failed"),
    ],
)
async def test_bookie_that_cannot_be_trusted_is_no_connection_with_one_line(
    bookie_of: Callable[..., BookieProcess],
    client_of: Callable[..., BookKeeperLedgerClient],
    certificates: Certificates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    case: str,
    said: str,
) -> None:
    caplog.set_level(logging.WARNING)
    server = Certificates(tmp_path / "other") if case == "stranger" else certificates
    settings = {} if case == "no TLS" else server_settings(server)
    if case == "another name":
        settings["tlsCertificatePath"] = str(certificates.authority)
        settings["tlsKeyStore"] = str(certificates.key(certificates.authority))
    bookie = await asyncio.to_thread(bookie_of, settings)
    keys: dict[str, object] = {"bookkeeperTLSTrustCertsFilePath": certificates.authority}
    if case == "another name":
        # The bookie shows the authority's own certificate, which has no address in it.
        keys["bookkeeper_tlsHostnameVerificationEnabled"] = "true"
    client = client_of(bookie, **keys)
    with pytest.raises(ConnectionError):
        await client.connected()
    assert not client.reachable
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("bookkeeper")]
    assert [said in line for line in lines] == [True]


def test_certificate_of_the_broker_needs_both_files(certificates: Certificates) -> None:
    for override in (
        "bookkeeperTLSClientAuthentication=true",
        f"bookkeeperTLSCertificateFilePath={certificates.client}",
        f"bookkeeperTLSKeyFilePath={certificates.client}",
    ):
        with pytest.raises(SettingsError, match="bookkeeperTLSKeyFilePath"):
            load_broker_settings(None, environ={}, overrides=[override], profile=None)
