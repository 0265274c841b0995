"""TLS on the data port: a connection switches to it when its client asks; other connections stay as they are."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie_stub.config.keys import TLS_FACTORY
from protocol.bookie_frame import RC_OK, AddResponse, decode_response, encode_add_request, encode_read_request
from protocol.bookie_frame_v3 import encode_message
from protocol.bookkeeper_api_pb2 import EBADREQ, ENOLEDGER, EOK, START_TLS
from tests.bookie_stub.conftest import MASTER_KEY, entry_of
from tests.bookie_stub.v3_client import V3Client
from tests.support.bookies import ROOT, BookieProcess
from tests.support.certificates import Certificates

LARGE = 2 << 20


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def tls_settings(certificates: Certificates, **more: object) -> dict[str, str]:
    settings = {
        "tlsProviderFactoryClass": TLS_FACTORY,
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": certificates.key(certificates.server),
        "tlsCertificatePath": certificates.server,
        **more,
    }
    return {key: str(value) for key, value in settings.items()}


@pytest.fixture(scope="module")
def bookie(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcess]:
    yield from running(tmp_path_factory.mktemp("bookie"), tls_settings(certificates))


def running(folder: Path, settings: dict[str, str]) -> Iterator[BookieProcess]:
    bookie = BookieProcess(folder, settings)
    bookie.spawn()
    bookie.wait_ready()
    yield bookie
    bookie.stop()


def port_of(bookie: BookieProcess) -> int:
    return int(bookie.address.rpartition(":")[2])


def context(certificates: Certificates, *, shown: Path | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=certificates.authority)
    if shown is not None:
        made.load_cert_chain(shown, certificates.key(shown))
    return made


async def secured(bookie: BookieProcess, tls: ssl.SSLContext) -> V3Client:
    client = await V3Client.connect(port_of(bookie))
    try:
        assert (await client.answer(client.send(client.request(START_TLS)))).status == EOK
        await client.writer.start_tls(tls, server_hostname="127.0.0.1")
    except BaseException:
        client.close()
        raise
    return client


async def serves(client: V3Client, ledger: int) -> bool:
    """Returns True when an add and a read succeed."""
    added = await client.answer(client.add(ledger, 0))
    found = await client.answer(client.read(ledger, 0))
    return (added.status, found.status, found.readResponse.body) == (EOK, EOK, entry_of(ledger, 0))


async def test_tls_carries_entries_of_all_sizes(bookie: BookieProcess, certificates: Certificates) -> None:
    client = await secured(bookie, context(certificates))
    payloads = [os.urandom(size) for size in (0, 1, 20_000, LARGE)] * 3
    adds = [client.add(1, entry, payload) for entry, payload in enumerate(payloads)]
    assert [(await client.answer(number)).status for number in adds] == [EOK] * len(payloads)
    for entry, payload in enumerate(payloads):
        found = await client.answer(client.read(1, entry))
        assert found.readResponse.body == entry_of(1, entry, payload)
    client.close()


async def test_v2_requests_work_after_the_tls_handshake(
    bookie: BookieProcess, certificates: Certificates
) -> None:
    """The way of BookKeeper's client with useV2WireProtocol: it asks for TLS with v3, the rest is v2."""
    client = await secured(bookie, context(certificates))
    count = 500
    for entry in range(count):
        client.writer.write(encode_add_request(entry_of(2, entry), MASTER_KEY))
    for _ in range(count):
        answer = decode_response(await frame(client))
        assert isinstance(answer, AddResponse)
        assert answer.rc == RC_OK
    client.writer.write(encode_read_request(2, count - 1))
    assert entry_of(2, count - 1) in await frame(client)
    client.close()


async def frame(client: V3Client) -> bytes:
    return await client.reader.readexactly(int.from_bytes(await client.reader.readexactly(4), "big"))


async def test_connection_stays_in_clear_text_when_it_does_not_ask_for_tls(bookie: BookieProcess) -> None:
    client = await V3Client.connect(port_of(bookie))
    assert await serves(client, 3)
    client.close()


async def test_outstanding_adds_are_answered_after_the_tls_handshake(
    bookie: BookieProcess, certificates: Certificates
) -> None:
    client = await V3Client.connect(port_of(bookie))
    adds = [client.add(4, entry) for entry in range(50)]
    asked = client.send(client.request(START_TLS))
    early = [await client.first_answer()]
    while early[-1].header.txnId != asked:
        early.append(await client.first_answer())
    await client.writer.start_tls(context(certificates), server_hostname="127.0.0.1")
    known = {answer.header.txnId for answer in early}
    for number in adds:
        assert number in known or (await client.answer(number)).status == EOK
    client.close()


async def test_second_request_for_tls_is_refused(bookie: BookieProcess, certificates: Certificates) -> None:
    client = await secured(bookie, context(certificates))
    assert (await client.answer(client.send(client.request(START_TLS)))).status == EBADREQ
    assert await serves(client, 5)
    client.close()


@pytest.mark.parametrize("whole", [True, False])
async def test_clear_text_behind_the_tls_request_ends_the_connection(
    bookie: BookieProcess, whole: bool
) -> None:
    """A third party that can insert bytes before the handshake could otherwise speak in the client's name."""
    client, other = await V3Client.connect(port_of(bookie)), await V3Client.connect(port_of(bookie))
    add = encode_message(client.add_request(66, 0))
    client.writer.write(encode_message(client.request(START_TLS)) + (add if whole else add[:9]))
    assert (await client.first_answer()).status == EOK
    assert await client.closed()
    assert (await other.answer(other.read(66, 0))).status == ENOLEDGER
    assert await serves(other, 6)
    for each in (client, other):
        each.close()


async def test_failed_tls_handshake_ends_its_connection_only(bookie: BookieProcess) -> None:
    client, other = await V3Client.connect(port_of(bookie)), await V3Client.connect(port_of(bookie))
    assert (await client.answer(client.send(client.request(START_TLS)))).status == EOK
    client.writer.write(b"this is no handshake of TLS, whatever the version")
    assert await ended(client)
    assert await serves(other, 7)
    for each in (client, other):
        each.close()


async def ended(client: V3Client) -> bool:
    """An alert of TLS may come first."""
    try:
        return len(await asyncio.wait_for(client.reader.read(), 60)) < 100
    except ConnectionResetError:
        return True


async def test_tls_refuses_a_client_without_the_required_certificate(
    certificates: Certificates, tmp_path: Path
) -> None:
    trust = {
        "tlsClientAuthentication": "true",
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": certificates.authority,
    }
    for bookie in running(tmp_path, tls_settings(certificates, **trust)):
        client = await secured(bookie, context(certificates, shown=certificates.client))
        assert await serves(client, 1)
        client.close()
        assert not await is_let_in(bookie, context(certificates))
        assert await clear_text_is_closed(bookie)


async def clear_text_is_closed(bookie: BookieProcess) -> bool:
    """A client that does not ask for TLS shows no certificate either: an add of v3 and of v2, and a run of adds."""
    ends = []
    for adds in (1, 50):
        client = await V3Client.connect(port_of(bookie))
        client.writer.write(b"".join(encode_message(client.add_request(8, entry)) for entry in range(adds)))
        ends.append(await ended(client))
        client.close()
        client = await V3Client.connect(port_of(bookie))
        client.writer.write(encode_add_request(entry_of(9, 0), MASTER_KEY) * adds)
        ends.append(await ended(client))
        client.close()
    return all(ends)


async def is_let_in(bookie: BookieProcess, tls: ssl.SSLContext) -> bool:
    """With TLS 1.3 a client learns that it was refused only when it reads."""
    try:
        client = await secured(bookie, tls)
    except (OSError, EOFError):
        return False
    try:
        return await serves(client, 2)
    except (OSError, EOFError):
        return False
    finally:
        client.close()


async def test_tls_key_is_read_with_its_password(certificates: Certificates, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("swordfish\n")
    locked = {"tlsKeyStore": certificates.locked_key("swordfish"), "tlsKeyStorePasswordPath": password}
    for bookie in running(tmp_path / "bookie", tls_settings(certificates, **locked)):
        client = await secured(bookie, context(certificates))
        assert await serves(client, 1)
        client.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tlsKeyStoreType": "JKS"}, "tlsKeyStoreType=JKS: with TLS allowed is PEM"),
        ({"tlsKeyStore": ""}, "tlsKeyStore names no file"),
        ({"tlsCertificatePath": "/there/is/none"}, "/there/is/none"),
        ({"tlsProviderFactoryClass": "my.Factory"}, "tlsProviderFactoryClass=my.Factory"),
        ({"tlsClientAuthentication": "true"}, "tlsTrustStoreType=JKS: with TLS allowed is PEM"),
        ({"tlsKeyStore": "authority.key"}, "KEY_VALUES_MISMATCH"),
        ({"tlsKeyStore": "locked.key"}, "locked.key"),
    ],
)
def test_start_refuses_unusable_tls_settings(
    certificates: Certificates, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    certificates.locked_key("swordfish")
    settings = {**tls_settings(certificates), **changes}
    if changes.get("tlsKeyStore", "").endswith(".key"):
        settings["tlsKeyStore"] = str(certificates.authority.parent / changes["tlsKeyStore"])
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    ended = subprocess.run(
        [sys.executable, "-m", "bookie_stub", "--data", str(tmp_path / "data"), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert ended.returncode == 2
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
